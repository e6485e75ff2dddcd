//! The nginx that backends start themselves: it tells in headers what promises about servers are judged by.

use std::fmt::Write;

use chainbreak_probe::wire::{BACKEND_HEADER, CLIENT_HEADER};

/// The configuration of a pod's or a host's nginx: one process, which names the server and the client it saw, and
/// writes nothing outside `folder`.
pub fn config(server: &str, ports: &[u16], has_v6: bool, folder: &str) -> String {
    let mut listens = String::new();
    for port in ports {
        write!(listens, " listen {port} backlog=4096;").expect("a String takes everything");
        if has_v6 {
            write!(listens, " listen [::]:{port} backlog=4096;")
                .expect("a String takes everything");
        }
    }
    let mut folders = String::new();
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        write!(folders, " {kind}_temp_path {folder}/{kind};").expect("a String takes everything");
    }
    let tells = telling(&format!("\"{server}\""));
    format!(
        "daemon off; master_process off; user root; pid {folder}/pid;\n\
         error_log stderr crit;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         access_log off; server_tokens off; keepalive_timeout 1h; keepalive_requests 100000000;\n\
         {folders}\n\
         {tells}\n\
         server {{{listens}\n\
         return 200 \"{server}\\n\";\n\
         }}\n\
         }}\n"
    )
}

/// What stands in the `http` of an nginx that tells: the server's name, in the words of its configuration, and the client that it saw.
pub fn telling(server: &str) -> String {
    format!(
        "map $remote_addr $chainbreak_client {{ ~: \"[$remote_addr]\"; default $remote_addr; }}\n\
         add_header {BACKEND_HEADER} {server} always;\n\
         add_header {CLIENT_HEADER} \"$chainbreak_client:$remote_port\" always;\n"
    )
}

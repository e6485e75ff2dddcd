//! Reading a table of iptables without making it.
//!
//! Asked for a table, `iptables-legacy-save` loads it, and from then on it is there: whoever only wanted to
//! see whether somebody uses a second backend would have made one. So it is asked only for tables that the
//! kernel lists. An ordinary user may not read that list in a namespace of their own, and then the look
//! makes a table in which nothing is.

/// `$1` is the program and `$2` the table. What iptables-nft is asked for it does not make.
const SAVE: &str = r#"
names=/proc/net/ip_tables_names
case "$1" in ip6*) names=/proc/net/ip6_tables_names ;; esac
while read -r name; do
  [ "$name" = "$2" ] && exec "$1" -c -t "$2"
done 2>/dev/null <"$names"
if [ ! -e "$names" ] || [ -r "$names" ]; then
  case "$(readlink -f "$(command -v "$1")")" in *legacy*) exit 0 ;; esac
fi
exec "$1" -c -t "$2""#;

/// The command that prints a table that is there, with its counters.
pub(crate) fn save(program: &str, table: &str) -> Vec<String> {
    [program, "-c", "-t", table].map(str::to_owned).to_vec()
}

/// The command that prints a table with its counters, or nothing where there is no such table. A shell more than
/// [`save`], which whoever has seen the table once may use from then on.
pub(crate) fn save_if_there(program: &str, table: &str) -> Vec<String> {
    ["sh", "-c", SAVE, "sh", program, table]
        .map(str::to_owned)
        .to_vec()
}

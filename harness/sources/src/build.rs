//! A kube-proxy of Go's modules: downloaded, tidied, compiled, asked for its version, kept.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{process::Command, time::timeout};

use crate::{
    Cache, Kept, Release, Say, Source, SourceError,
    cache::{Begun, Workplace},
    go::{Failure, Go, Nature},
    recipe::{self, KUBERNETES, PROGRAM, Upstream},
    room::room,
    scripts,
    words::{self, GoError},
};

/// The program, in its workplace.
const NAME: &str = "kube-proxy";
/// `--version` takes a tenth of a second of an idle machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// MB that a first build takes: the program, twice; modules and their archives and objects. Estimated, not measured.
const ROOM: [u64; 3] = [200, 1500, 1200];

/// Makes kube-proxies, each once.
#[derive(Debug)]
pub struct Builder<'a> {
    /// Where they are kept.
    pub cache: &'a Cache,
    /// Which `go`: by its name, that of `PATH`.
    pub go: PathBuf,
}

impl<'a> Builder<'a> {
    /// With the `go` of the machine.
    pub fn new(cache: &'a Cache) -> Self {
        Self {
            cache,
            go: "go".into(),
        }
    }

    /// The path of that release's program, built if it is not there yet. Where there is no Go, what another one built is as good.
    pub async fn build(&self, release: Release, say: Say<'_>) -> Result<PathBuf, SourceError> {
        if release == Release::OF_SCRIPTS {
            return scripts::kube_proxy(self.cache, say).await;
        }
        if !release.can_be_built() {
            return Err(SourceError::TooOld { release });
        }
        let nature = match self.go(Path::new("/")).nature().await {
            Ok(nature) => nature,
            Err(failure) => {
                let built = self.at_hand(release)?;
                return built
                    .ok_or_else(|| meaning(failure, release, "ask Go for its version", ""));
            }
        };
        let name = format!("{NAME}-{}", release.tag());
        let made = format!("{name}-{}-{}", first_word(&nature.version), recipe::key());
        match self.cache.begin(&name, &made, say).await? {
            Begun::There(path) => Ok(path),
            Begun::Make(place) => self.make(release, &nature, place, say).await,
        }
    }

    fn go<'b>(&'b self, folder: &'b Path) -> Go<'b> {
        Go {
            program: &self.go,
            folder,
        }
    }

    /// The path of that release's program if it is there, whichever Go built it.
    pub fn at_hand(&self, release: Release) -> Result<Option<PathBuf>, SourceError> {
        let key = recipe::key();
        let is_it = |kept: &Kept| {
            let name = kept.path.file_name().and_then(OsStr::to_str);
            let same = name.is_some_and(|name| name.ends_with(&key));
            let as_built = kept.source == Source::Scripts || same;
            kept.release() == Some(release) && !kept.is_root() && as_built
        };
        let found = self.cache.kept()?.into_iter().find(is_it);
        Ok(found.map(|kept| kept.path))
    }

    async fn make(
        &self,
        release: Release,
        nature: &Nature,
        place: Workplace,
        say: Say<'_>,
    ) -> Result<PathBuf, SourceError> {
        self.has_room(release, nature)?;
        let begun = Instant::now();
        let go = self.go(place.folder());
        say(&format!(
            "builds kube-proxy {release} with {}: some minutes, once",
            nature.version
        ));
        let upstream = upstream(&go, release, &nature.version, say).await?;
        let write = |name: &str, text: &str| {
            let path = place.folder().join(name);
            fs::write(&path, text).map_err(SourceError::cache("write", path))
        };
        write("main.go", PROGRAM)?;
        write("go.mod", &upstream.go_mod(release))?;
        let steps: [(&str, &'static str, &[&str]); 2] = [
            (
                "downloads the modules that it needs",
                "find the modules that it needs",
                &["mod", "tidy"],
            ),
            (
                "compiles",
                "compile it",
                &[
                    "build",
                    "-trimpath",
                    "-ldflags",
                    &recipe::linker_flags(release),
                    "-o",
                    NAME,
                    ".",
                ],
            ),
        ];
        for (doing, what, args) in steps {
            let doing = format!("kube-proxy {release} {doing}");
            say(&doing);
            let done = go.work(args, &doing, say).await;
            done.map_err(|failure| meaning(failure, release, what, &upstream.go))?;
        }
        is_called(&place.folder().join(NAME), release).await?;
        let path = place.finish(NAME)?;
        say(&format!(
            "built kube-proxy {release} in {} s: {}",
            begun.elapsed().as_secs(),
            path.display()
        ));
        Ok(path)
    }

    fn has_room(&self, release: Release, nature: &Nature) -> Result<(), SourceError> {
        let folders = [
            (self.cache.folder(), "XDG_CACHE_HOME"),
            (&nature.modules, "GOMODCACHE"),
            (&nature.objects, "GOCACHE"),
        ];
        for ((at, by), needs) in folders.into_iter().zip(ROOM) {
            room(&format!("kube-proxy {release}"), at, by, needs)?;
        }
        Ok(())
    }
}

/// The release's own go.mod, where this Go will do for it.
async fn upstream(
    go: &Go<'_>,
    release: Release,
    have: &str,
    say: Say<'_>,
) -> Result<Upstream, SourceError> {
    let module = format!("{KUBERNETES}@{}", release.tag());
    let doing = format!("kube-proxy {release} downloads its source");
    say(&doing);
    let path = go.download(&module, &doing, say).await;
    let path = path.map_err(|failure| match &failure {
        Failure::Said(said) if words::trouble(said) == GoError::NotThere => {
            SourceError::NoRelease {
                release,
                said: words::telling(said),
            }
        }
        _ => meaning(failure, release, "download its source", ""),
    })?;
    let text = fs::read_to_string(&path).map_err(SourceError::cache("read", &path))?;
    let upstream = Upstream::read(&text).ok_or_else(|| SourceError::Failed {
        release,
        what: "read its go.mod",
        said: "it is none of Kubernetes".to_owned(),
    })?;
    let may_fetch = std::env::var("GOTOOLCHAIN").is_ok_and(|it| it != "local");
    if !may_fetch && !recipe::is_new_enough(have, &upstream.go) {
        return Err(SourceError::OldGo {
            release,
            asked: upstream.go,
            have: have.to_owned(),
        });
    }
    Ok(upstream)
}

/// What a failure of Go means to whoever wants that release.
fn meaning(failure: Failure, release: Release, what: &'static str, asked: &str) -> SourceError {
    let said = match failure {
        Failure::Absent => return SourceError::NoGo { release },
        Failure::Said(said) => said,
    };
    let telling = words::telling(&said);
    match words::trouble(&said) {
        GoError::NoRoom => SourceError::Full {
            release,
            said: telling,
        },
        GoError::NoOrigin => SourceError::NoOrigin { said: telling },
        GoError::NotThere => SourceError::NoModule {
            release,
            said: telling,
        },
        GoError::TooOld => SourceError::OldGo {
            release,
            asked: asked.to_owned(),
            have: telling,
        },
        GoError::Other => SourceError::Failed {
            release,
            what,
            said: telling,
        },
    }
}

/// Whether a program calls itself that release.
async fn is_called(program: &Path, release: Release) -> Result<(), SourceError> {
    let mut command = Command::new(program);
    command
        .arg("--version")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let failed = |said: String| SourceError::Failed {
        release,
        what: "ask it for its version",
        said,
    };
    let output = timeout(DEADLINE, command.output()).await;
    let output = output.map_err(|elapsed| failed(elapsed.to_string()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if said == format!("Kubernetes {}", release.tag()) {
        Ok(())
    } else {
        Err(SourceError::OtherName { release, said })
    }
}

/// `go1.26.8` of `go1.26.8 X:…`.
fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or("go")
}

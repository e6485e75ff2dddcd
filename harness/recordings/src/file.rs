//! How a recording is kept: gzip around JSON, the worlds of one release and mode. Worlds of one release have most
//! places and lines in common, so each is kept once and named by number.

use std::{
    collections::BTreeMap,
    fs, io,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder, read::GzDecoder};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::world::{Mode, World};

/// The format that is written and read here.
const FORMAT: u32 = 1;

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Header {
    /// The release, as its model is asked for: `1.34.2`.
    pub version: String,
    /// SHA-256 of the program.
    pub sha256: String,
    /// `--proxy-mode`.
    pub mode: Mode,
}

/// The worlds of one release and mode.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What was recorded.
    pub header: Header,
    /// In the order of their seeds.
    pub worlds: Vec<World>,
}

/// Why a recording cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no recording, or another version's.
    #[error("{} is not a recording of format {FORMAT}: {what}", path.display())]
    Content {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Packed {
    format: u32,
    of: Header,
    texts: Vec<String>,
    worlds: Vec<Value>,
}

/// The name of the file of a release and mode.
pub fn name(header: &Header) -> String {
    format!("kube-proxy-{}-{}.json.gz", header.version, header.mode)
}

/// Reads a recording.
pub fn read(path: &Path) -> Result<Recording, FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let content = |what: String| FileError::Content {
        path: path.to_owned(),
        what,
    };
    let file = fs::File::open(path).map_err(io)?;
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).map_err(io)?;
    let packed: Packed = serde_json::from_str(&text).map_err(|it| content(it.to_string()))?;
    if packed.format != FORMAT {
        return Err(content(format!("it is of format {}", packed.format)));
    }
    let worlds = packed.worlds.into_iter().map(|world| {
        let world = unpacked(world, &packed.texts).ok_or("a text is missing".to_owned())?;
        serde_json::from_value(world).map_err(|it| it.to_string())
    });
    Ok(Recording {
        header: packed.of,
        worlds: worlds.collect::<Result<_, _>>().map_err(content)?,
    })
}

/// Writes a recording. The same one gives the same bytes.
pub fn write(path: &Path, recording: &Recording) -> Result<(), FileError> {
    let io = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    let worlds = recording.worlds.iter();
    let worlds: Result<Vec<Value>, _> = worlds.map(serde_json::to_value).collect();
    let worlds = worlds.map_err(|it| io(it.into()))?;
    let mut counts = BTreeMap::new();
    for world in &worlds {
        count(world, &mut counts);
    }
    let texts: Vec<String> = counts
        .into_iter()
        .filter(|(text, times)| *times > 1 && text.len() > SHORT)
        .map(|(text, _)| text.to_owned())
        .collect();
    let numbers = texts.iter().enumerate();
    let numbers: BTreeMap<&str, usize> = numbers.map(|(it, text)| (text.as_str(), it)).collect();
    let packed = Packed {
        format: FORMAT,
        of: recording.header.clone(),
        worlds: worlds.iter().map(|it| packed(it, &numbers)).collect(),
        texts: texts.clone(),
    };
    let text = serde_json::to_vec(&packed).map_err(|it| io(it.into()))?;
    // Neither a name nor a time.
    let mut gz = GzBuilder::new().write(Vec::new(), Compression::best());
    gz.write_all(&text).map_err(io)?;
    let bytes = gz.finish().map_err(io)?;
    fs::write(path, bytes).map_err(io)
}

/// Texts as short as their number are kept where they stand.
const SHORT: usize = 8;
/// A text's number stands behind this. No text of a recording begins with it.
const MARK: char = '\u{1}';

fn count<'a>(value: &'a Value, counts: &mut BTreeMap<&'a str, usize>) {
    match value {
        Value::String(text) => *counts.entry(text).or_default() += 1,
        Value::Array(items) => items.iter().for_each(|it| count(it, counts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                *counts.entry(key).or_default() += 1;
                count(value, counts);
            }
        }
        _ => {}
    }
}

fn packed(value: &Value, numbers: &BTreeMap<&str, usize>) -> Value {
    let short = |text: &str| match numbers.get(text) {
        Some(number) => format!("{MARK}{number}"),
        None => text.to_owned(),
    };
    mapped(value.clone(), &|text| Some(short(&text))).unwrap_or_default()
}

fn unpacked(value: Value, texts: &[String]) -> Option<Value> {
    mapped(value, &|text| match text.strip_prefix(MARK) {
        Some(number) => texts.get(number.parse::<usize>().ok()?).cloned(),
        None => Some(text),
    })
}

fn mapped(value: Value, map: &impl Fn(String) -> Option<String>) -> Option<Value> {
    Some(match value {
        Value::String(text) => Value::String(map(text)?),
        Value::Array(items) => {
            let items = items.into_iter().map(|it| mapped(it, map));
            Value::Array(items.collect::<Option<_>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(key, value)| Some((map(key)?, mapped(value, map)?)));
            Value::Object(fields.collect::<Option<_>>()?)
        }
        other => other,
    })
}

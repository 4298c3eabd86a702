//! Where the bytes come from: a file, standard input or the sample inside this program. Gzip is told by its first bytes.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// The first 5,319 events of the trace that README.md describes.
static SAMPLE: &[u8] = include_bytes!("sample.jsonl.gz");

/// An open input.
pub struct Source {
    /// For people.
    pub name: String,
    pub reader: Box<dyn Read + Send>,
    /// Bytes of the input as it is stored, where that is known.
    pub length: Option<u64>,
    /// How many of them were read.
    pub position: Arc<AtomicU64>,
}

impl Source {
    /// `-` is standard input, nothing is the sample.
    ///
    /// # Errors
    ///
    /// If there is no such file, or it can't be read; the text says what to do.
    pub fn open(input: Option<&Path>) -> Result<Source, String> {
        let Some(path) = input else {
            return Source::new("the embedded sample".into(), SAMPLE, Some(SAMPLE.len() as u64));
        };
        if path == Path::new("-") {
            return Source::new("standard input".into(), io::stdin(), None);
        }
        let name = path.display().to_string();
        let wrong = |why: String| format!("{name}: {why}");
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
        if metadata.is_dir() {
            return Err(wrong("is a directory: name a file, or `-` for standard input".into()));
        }
        // A pipe has no length.
        let length = metadata.is_file().then_some(metadata.len());
        Source::new(name.clone(), file, length)
    }

    fn new(name: String, reader: impl Read + Send + 'static, length: Option<u64>) -> Result<Source, String> {
        let position = Arc::new(AtomicU64::new(0));
        let mut reader = Counted { reader, position: position.clone() };
        let mut start = Vec::new();
        (&mut reader).take(2).read_to_end(&mut start).map_err(|error| format!("{name}: {error}"))?;
        let gzip = start == [0x1f, 0x8b];
        let whole = Cursor::new(start).chain(reader);
        let reader: Box<dyn Read + Send> = if gzip { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) };
        Ok(Source { name, reader, length, position })
    }
}

struct Counted<R> {
    reader: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.position.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

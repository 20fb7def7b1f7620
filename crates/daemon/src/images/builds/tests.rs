//! Tests of builds, with a source that builds when the test says so.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use hutch_image::UnknownImage;
use hutch_units::{Bytes, Mebibytes};

use super::*;
use crate::images::SourceError;

/// Each build waits for a word of the test: `true` lets it succeed.
#[derive(Debug)]
struct Staged {
    words: Mutex<Receiver<bool>>,
    begun: Sender<()>,
    built: Mutex<Option<ReadyImage>>,
}

impl ImageSource for Staged {
    fn catalogue(&self) -> Vec<CatalogueEntry> {
        vec![CatalogueEntry { name: "a:1".to_owned(), description: "d".to_owned(), is_default: true }]
    }

    fn resolve(&self, name: &str) -> Result<String, UnknownImage> {
        let known = name.is_empty() || name == "a:1";
        known.then(|| "a:1".to_owned()).ok_or(UnknownImage { name: name.to_owned(), choices: vec!["a:1"] })
    }

    fn built(&self, _: &str) -> Option<ReadyImage> {
        self.built.lock().unwrap().clone()
    }

    fn build(&self, name: &str, progress: &dyn Fn(Event), _: &Cancel) -> Result<ReadyImage, SourceError> {
        progress(Event::Step { step: Step::Packages, number: 2, of: 4 });
        progress(Event::Detail { step: Step::Packages, text: "bash".to_owned(), percent: Some(50) });
        self.begun.send(()).unwrap();
        if self.words.lock().unwrap().recv().unwrap() {
            let ready = ReadyImage { path: "/a".into(), size: Bytes(7), built_at: Moment(5_000) };
            *self.built.lock().unwrap() = Some(ready.clone());
            Ok(ready)
        } else {
            Err(SourceError { what: name.to_owned(), source: "no mirror answers".into() })
        }
    }

    fn make_disk(&self, _: &Path, _: Mebibytes) -> Result<(), SourceError> {
        Ok(())
    }
}

fn staged() -> (Images, Arc<Metrics>, Sender<bool>, Receiver<()>) {
    let (say, words) = channel();
    let (begun, is_begun) = channel();
    let source = Staged { words: Mutex::new(words), begun, built: Mutex::default() };
    let metrics = Arc::new(Metrics::default());
    let images = Images::new(Arc::new(source), Clock::standing(Moment(1_000)), Arc::clone(&metrics));
    (images, metrics, say, is_begun)
}

async fn until_settled(images: &Images) -> ImageView {
    loop {
        let view = images.view("").unwrap();
        if view.status != ImageStatus::Building {
            return view;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_built_once_and_then_there() {
    let (images, metrics, say, is_begun) = staged();
    assert_eq!(images.view("a:1").unwrap().status, ImageStatus::Absent);
    assert!(images.view("b").is_none());
    let error = images.require("a:1").unwrap_err();
    assert_eq!((error.kind, error.retry_after), (ErrorKind::ImageBuilding, Some(RETRY_AFTER)));
    is_begun.recv().unwrap();
    let message = images.require("a:1").unwrap_err().message;
    assert_eq!(message, "the image \"a:1\" is being built: 37 % (installing packages, bash); try again");
    images.build("a:1");
    say.send(true).unwrap();
    let view = until_settled(&images).await;
    assert_eq!((view.status, view.size_bytes), (ImageStatus::Ready, Some(7)));
    assert_eq!(images.require("a:1").unwrap().size, Bytes(7));
    assert_eq!(metrics.counted(Count::ImageBuilt), 1);
    assert!(is_begun.try_recv().is_err(), "it was built once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_told_once_and_then_tried_again() {
    let (images, metrics, say, is_begun) = staged();
    images.require("a:1").unwrap_err();
    is_begun.recv().unwrap();
    say.send(false).unwrap();
    let view = until_settled(&images).await;
    assert_eq!(view.status, ImageStatus::Failed);
    assert!(view.error.unwrap().ends_with("no mirror answers"));
    assert_eq!(images.require("a:1").unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(images.require("a:1").unwrap_err().kind, ErrorKind::ImageBuilding);
    is_begun.recv().unwrap();
    say.send(true).unwrap();
    assert_eq!(until_settled(&images).await.status, ImageStatus::Ready);
    assert_eq!(metrics.counted(Count::ImageBuildFailed), 1);
}

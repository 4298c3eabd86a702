//! A source that answers what no sound source would: versions that go back, a list from the past, events for what was
//! never there, the same again and again. The store ends as the source says, and nothing waits for ever.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delta_fifo::Keyed;
use delta_fifo::informer::{
    ListOptions, ListPage, ListWatch, Reflector, ReflectorOptions, ResourceVersion, SourceError, Store, Versioned,
    WatchEvent, WatchOptions,
};
use futures_lite::stream::{self, Boxed, StreamExt};

#[derive(Clone, Debug, PartialEq)]
struct Object(&'static str, u64);

impl Keyed<String> for Object {
    fn key(&self) -> String {
        self.0.to_owned()
    }
}

impl Versioned for Object {
    fn resource_version(&self) -> ResourceVersion {
        self.1.into()
    }
}

type Watch = Vec<WatchEvent<Object>>;

/// Lists and watches in the order in which they are asked for. The last of each stays.
struct Script {
    lists: Mutex<VecDeque<ListPage<Object>>>,
    watches: Mutex<VecDeque<Watch>>,
}

impl ListWatch<Object> for Script {
    type Watch = Boxed<Result<WatchEvent<Object>, SourceError>>;

    async fn list(&self, _: ListOptions) -> Result<ListPage<Object>, SourceError> {
        let mut lists = self.lists.lock().unwrap();
        let page = lists.pop_front().expect("a script has at least one list");
        if lists.is_empty() {
            lists.push_front(ListPage::new(page.items.clone(), page.resource_version.clone()));
        }
        Ok(page)
    }

    async fn watch(&self, _: WatchOptions) -> Result<Self::Watch, SourceError> {
        let mut watches = self.watches.lock().unwrap();
        let events = stream::iter(watches.pop_front().unwrap_or_default()).map(Ok);
        // The last watch stays open; the others end with an error that needs a new list.
        Ok(match watches.is_empty() {
            true => events.chain(stream::pending()).boxed(),
            false => events.chain(stream::once(Err(SourceError::Expired))).boxed(),
        })
    }
}

fn modified(name: &'static str, version: u64) -> WatchEvent<Object> {
    WatchEvent::Modified { object: Arc::new(Object(name, version)), resource_version: version.into() }
}

fn deleted(name: &'static str, version: u64) -> WatchEvent<Object> {
    WatchEvent::Deleted { object: Arc::new(Object(name, version)), resource_version: version.into() }
}

fn bookmark(version: u64) -> WatchEvent<Object> {
    WatchEvent::Bookmark { resource_version: version.into(), initial_events_end: false }
}

fn list(objects: &[Object], version: u64) -> ListPage<Object> {
    ListPage::new(objects.iter().cloned().map(Arc::new).collect(), version)
}

/// Runs until the store has exactly these objects.
async fn ends_as(lists: Vec<ListPage<Object>>, watches: Vec<Watch>, wanted: &[Object]) -> Arc<Store<Object, String>> {
    let source = Script { lists: Mutex::new(lists.into()), watches: Mutex::new(watches.into()) };
    let store = Arc::new(Store::<Object, String>::new());
    let reflector = Reflector::new(source, store.clone());
    let running = tokio::spawn(async move { reflector.run().await });
    let mut changes = store.subscribe();
    let content = || {
        let mut content: Vec<Object> = store.list().iter().map(|object| Object::clone(object)).collect();
        content.sort_by_key(|object| object.0);
        content
    };
    let reached = async {
        while content() != wanted {
            changes.changed().await.expect("the store lives");
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(600), reached).await;
    assert!(in_time.is_ok(), "after ten minutes the store has {:?}", content());
    assert!(!running.is_finished(), "the reflector goes on");
    running.abort();
    store
}

#[tokio::test(start_paused = true)]
async fn versions_that_go_back_in_a_watch_are_taken_in_the_order_of_their_coming() {
    let watch =
        vec![modified("a", 20), modified("a", 5), bookmark(3), modified("b", 7), modified("c", 4), deleted("c", 2)];
    ends_as(vec![list(&[Object("a", 10)], 10)], vec![watch], &[Object("a", 5), Object("b", 7)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_from_the_past_is_the_whole_truth() {
    // As after a restore from a backup.
    let lists = vec![list(&[Object("a", 10), Object("b", 11)], 11), list(&[Object("a", 3)], 3)];
    let watches = vec![vec![modified("c", 12)], vec![modified("d", 4)]];
    ends_as(lists, watches, &[Object("a", 3), Object("d", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn events_for_what_was_never_there_do_no_harm() {
    let watch = vec![deleted("x", 11), modified("y", 12), deleted("y", 13), deleted("y", 14), modified("a", 15)];
    ends_as(vec![list(&[], 10)], vec![watch], &[Object("a", 15)]).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_with_one_key_many_times_keeps_the_last() {
    let mut objects = vec![Object("a", 1); 10_000];
    objects.push(Object("a", 2));
    ends_as(vec![list(&objects, 2)], vec![vec![]], &[Object("a", 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn one_object_for_ever_is_kept_once() {
    let watch = (11..=100_000).map(|version| modified("a", version)).collect();
    let store = ends_as(vec![list(&[Object("a", 10)], 10)], vec![watch], &[Object("a", 100_000)]).await;
    assert_eq!(store.len(), 1);
}

/// A source whose list never ends: each page says that there is one more.
struct Endless {
    /// The next page's token; the same one each time, or another.
    token: fn(u64) -> String,
    /// Whether pages have objects.
    empty: bool,
    pages: Arc<std::sync::atomic::AtomicU64>,
}

impl ListWatch<Object> for Endless {
    type Watch = Boxed<Result<WatchEvent<Object>, SourceError>>;

    async fn list(&self, _: ListOptions) -> Result<ListPage<Object>, SourceError> {
        let n = self.pages.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut page = if self.empty { list(&[], 1) } else { list(&[Object("a", n), Object("b", n)], 1) };
        page.continue_token = Some((self.token)(n));
        Ok(page)
    }

    async fn watch(&self, _: WatchOptions) -> Result<Self::Watch, SourceError> {
        Err(SourceError::Unsupported)
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_refused_and_tried_again() {
    /// The tokens, whether pages are empty, and what the error says.
    type Case = (fn(u64) -> String, bool, &'static str);
    let endless: [Case; 3] = [
        (|n| n.to_string(), false, "max_objects"),
        (|n| n.to_string(), true, "1000 empty pages"),
        (|_| "again".to_owned(), false, "same page"),
    ];
    for (token, empty, said) in endless {
        let pages = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let source = Endless { token, empty, pages: pages.clone() };
        let store = Arc::new(Store::<Object, String>::new());
        let (report, mut reported) = tokio::sync::mpsc::unbounded_channel();
        let options = ReflectorOptions { max_objects: 2_000, watch_list: false, ..ReflectorOptions::default() };
        let reflector = Reflector::new(source, store.clone())
            .options(options)
            .on_error(move |error| drop(report.send(error.to_string())));
        let running = tokio::spawn(async move { reflector.run().await });
        for attempt in 1..=3 {
            let text = reported.recv().await.expect("the reflector goes on");
            assert!(text.contains(said), "{text}");
            assert!(!text.contains("connection"), "nothing is wrong with it: {text}");
            let asked = pages.load(std::sync::atomic::Ordering::Relaxed);
            assert!(asked <= attempt * 1_001, "{asked} pages in {attempt} attempts");
        }
        assert!(store.is_empty(), "a list without an end is no list");
        running.abort();
    }
}

/// The list has no end within a test's time, and nothing in the source ever waits.
#[tokio::test]
async fn a_list_without_an_end_does_not_keep_a_reflector_from_being_stopped() {
    let pages = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let source = Endless { token: |n| n.to_string(), empty: false, pages: pages.clone() };
    let reflector = Reflector::new(source, Arc::new(Store::<Object, String>::new()));
    let running = tokio::spawn(async move { reflector.run().await });
    // This test has one thread: it comes back here only if the reflector lets it.
    while pages.load(std::sync::atomic::Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let asked = pages.load(std::sync::atomic::Ordering::Relaxed);
    assert!(asked < 1_000, "{asked} pages");
}

#[tokio::test(start_paused = true)]
async fn single_empty_pages_are_no_harm() {
    // Filters at the source leave pages empty, but not a thousand in a row.
    let mut lists = Vec::new();
    for n in 0..3_000 {
        let objects: &[Object] = if n % 900 == 899 { &[Object("a", 1)] } else { &[] };
        lists.push(ListPage { continue_token: Some(n.to_string()), ..list(objects, 1) });
    }
    lists.push(list(&[Object("b", 1)], 1));
    ends_as(lists, vec![vec![]], &[Object("a", 1), Object("b", 1)]).await;
}

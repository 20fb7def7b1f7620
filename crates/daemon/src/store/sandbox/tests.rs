//! Tests of the statements over sandboxes.

use super::*;
use crate::store::query::{create_account, list, stats, transitions_of};
use crate::store::{Access, Filter, Stats, open};
use crate::tests;

struct Fixture {
    db: Connection,
    account: String,
    _folder: tempfile::TempDir,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder.path().join("hutch.db"), Access::Write).unwrap();
    let account = create_account(&db, "owner", Moment(1)).unwrap().id;
    Fixture { db, account, _folder: folder }
}

impl Fixture {
    fn new_sandbox(&self, names: &[&str]) -> NewSandbox {
        NewSandbox {
            id: SandboxId::generate(),
            account: self.account.clone(),
            names: names.iter().map(|name| SandboxName::parse(name).unwrap()).collect(),
            spec: tests::spec(),
            labels: BTreeMap::new(),
            auto_pause_after_seconds: None,
            auto_destroy_after_seconds: None,
            ingress: false,
            expires_at: None,
            receipt: None,
            desired: Desired::Running,
            template: None,
            origin: None,
            snapshot: None,
            parent: None,
            forked_from: None,
        }
    }

    fn insert(&self, names: &[&str]) -> Result<SandboxRow, Taken> {
        insert(&self.db, self.new_sandbox(names), Moment(10)).unwrap()
    }
}

#[test]
fn a_row_comes_back_as_it_was_written() {
    let fixture = fixture();
    let mut new = fixture.new_sandbox(&["a"]);
    new.labels.insert("job".to_owned(), "\"7\"".to_owned());
    new.spec.envs.insert("A".to_owned(), "line\nline".to_owned());
    let mut row = insert(&fixture.db, new, Moment(10)).unwrap().unwrap();
    assert_eq!(find(&fixture.db, &row.id.to_string()).unwrap().unwrap(), row);
    row.state = State::Running;
    row.desired = Desired::Destroyed;
    row.reason = Some("because".to_owned());
    row.machine = Some("{}".to_owned());
    row.spawn_ms = Some(12.5);
    row.running_at = Some(Moment(20));
    row.expires_at = Some(Moment(30));
    row.auto_pause_after_seconds = Some(60);
    row.ingress = true;
    apply(&fixture.db, &row, None).unwrap();
    assert_eq!(find(&fixture.db, &row.id.to_string()).unwrap().unwrap(), row);
    assert_eq!(transitions_of(&fixture.db, &row.id.to_string()).unwrap().len(), 1);
}

#[test]
fn a_name_is_free_again_once_its_sandbox_is_gone() {
    let fixture = fixture();
    let mut first = fixture.insert(&["a"]).unwrap();
    assert_eq!(fixture.insert(&["a"]), Err(Taken::Name));
    assert_eq!(fixture.insert(&["a", "b"]).unwrap().name.as_str(), "b");
    first.state = State::Failed;
    apply(&fixture.db, &first, None).unwrap();
    assert!(fixture.insert(&["a"]).is_ok());
}

#[test]
fn slots_are_the_lowest_free_and_never_shared() {
    let fixture = fixture();
    let mut rows: Vec<SandboxRow> = (0..4).map(|n| fixture.insert(&[&format!("a{n}")]).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row.slot).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)]);
    for freed in [2, 0] {
        rows[freed].slot = None;
        apply(&fixture.db, &rows[freed], None).unwrap();
    }
    assert_eq!(fixture.insert(&["b"]).unwrap().slot, Some(0));
    assert_eq!(fixture.insert(&["c"]).unwrap().slot, Some(2));
    assert_eq!(fixture.insert(&["d"]).unwrap().slot, Some(4));
    rows[1].slot = Some(3);
    assert!(apply(&fixture.db, &rows[1], None).is_err());
}

#[test]
fn an_idempotency_key_that_did_not_lead_to_a_row_is_free() {
    let fixture = fixture();
    fixture.insert(&["a"]).unwrap();
    let mut new = fixture.new_sandbox(&["a"]);
    new.receipt = Some(("k".to_owned(), vec![1]));
    assert_eq!(insert(&fixture.db, new.clone(), Moment(11)).unwrap(), Err(Taken::Name));
    new.names = vec![SandboxName::parse("b").unwrap()];
    let row = insert(&fixture.db, new.clone(), Moment(12)).unwrap().unwrap();
    let repeated = insert(&fixture.db, new, Moment(13)).unwrap();
    assert!(matches!(repeated, Err(Taken::Repeated(receipt)) if receipt.sandbox == row.id.to_string()));
}

#[test]
fn lists_are_filtered_paged_and_counted() {
    let fixture = fixture();
    let other = create_account(&fixture.db, "other", Moment(1)).unwrap().id;
    for number in 0..5 {
        let mut new = fixture.new_sandbox(&[&format!("a{number}")]);
        new.labels.insert("parity".to_owned(), ["even", "odd"][number % 2].to_owned());
        if number == 4 {
            new.account.clone_from(&other);
        }
        let mut row = insert(&fixture.db, new, Moment(10)).unwrap().unwrap();
        if number == 3 {
            row.state = State::Running;
            apply(&fixture.db, &row, None).unwrap();
        }
    }
    let mine = Filter { account: Some(fixture.account.clone()), ..Filter::default() };
    let page = list(&fixture.db, &mine, 2, 1).unwrap();
    assert_eq!((page.total, page.rows.len()), (4, 2));
    let odd = Filter { labels: [("parity".to_owned(), "odd".to_owned())].into(), ..mine.clone() };
    assert_eq!(list(&fixture.db, &odd, 50, 0).unwrap().total, 2);
    let running = Filter { states: vec![State::Running, State::Paused], ..mine.clone() };
    assert_eq!(list(&fixture.db, &running, 50, 0).unwrap().rows[0].name.as_str(), "a3");
    let named = Filter { name: Some("a4".to_owned()), ..mine };
    assert_eq!(list(&fixture.db, &named, 50, 0).unwrap().total, 0);
    assert_eq!(list(&fixture.db, &Filter::default(), 50, u64::MAX).unwrap().rows.len(), 0);
    assert_eq!(stats(&fixture.db, &fixture.account).unwrap(), Stats { running: 1, paused: 0, other: 3 });
}

#[test]
fn expiry_and_retention_are_read_from_the_rows() {
    let fixture = fixture();
    let mut row = fixture.insert(&["a"]).unwrap();
    row.expires_at = Some(Moment(100));
    row.state = State::Running;
    apply(&fixture.db, &row, None).unwrap();
    assert_eq!(due(&fixture.db, Moment(99)).unwrap(), []);
    assert_eq!(due(&fixture.db, Moment(100)).unwrap(), [row.id]);
    (row.state, row.ended_at) = (State::Destroyed, Some(Moment(110)));
    apply(&fixture.db, &row, None).unwrap();
    assert_eq!(due(&fixture.db, Moment(200)).unwrap(), []);
    // As long as something may be left on the host the row stays.
    assert_eq!(delete(&fixture.db, Moment(200), Moment(200)).unwrap(), 0);
    row.slot = None;
    apply(&fixture.db, &row, None).unwrap();
    assert_eq!(delete(&fixture.db, Moment(110), Moment(200)).unwrap(), 0);
    assert_eq!(delete(&fixture.db, Moment(111), Moment(0)).unwrap(), 1);
}

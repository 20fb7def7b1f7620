//! What the daemon must not forget: one SQLite file, `<data>/hutch.db`.
//!
//! A row says what is wanted and what is; the host is changed only after the row that owns the change is
//! committed, and the row lets go only after the host is clean again. So whatever moment the daemon is killed at,
//! the store names everything there is to find on the host.
//!
//! All writes go through one thread, which puts those that wait at the same time into one transaction: a burst of
//! creates costs a few waits for the disk, not one each. `synchronous=FULL` makes an acknowledged write survive
//! the loss of power; what such a loss ends anyway is only noted, which survives the end of the daemon. Reads have a connection of their own and never wait for a commit.

mod account;
mod connection;
mod error;
mod idempotency;
mod listing;
mod migration;
mod sandbox;
mod slot;
mod snapshot;
mod specification;
mod template;
mod thread;
mod transition;
mod usage;

pub use account::{Account, KeyRow};
pub use connection::{Access, open};
pub use error::StoreError;
pub use idempotency::{Claim, Receipt};
pub use listing::{Filter, Page, Stats};
pub use sandbox::{Desired, NewSandbox, SLOTS, SandboxRow, Taken};
pub use slot::SlotRow;
pub use snapshot::{SnapshotKind, SnapshotRow, SnapshotState, SnapshotsWanted};
pub use specification::{SPEC_VERSION, Spec};
pub use template::{TemplateRow, TemplateState};
pub use thread::Store;
pub use transition::TransitionRow;
pub use usage::{Reading, UsageKind, UsageRow, UsageWanted};

pub mod query {
    //! The statements, as functions over a connection: the store's thread runs them, and so do the commands that
    //! work on the file while no daemon runs.

    pub use super::account::{
        accounts, create_account, create_key, find_key, keys, remember, remembered, revoke_key, touch_key,
    };
    pub use super::idempotency::{claim, find_receipt, forget_receipts_before, release, settle};
    pub use super::listing::{count_by_state, list, stats};
    pub use super::sandbox::{
        apply, delete, due, find, find_named, held, insert, insert_all, insert_prepared, next_slot, replace_labels,
        sandbox_ids, touch,
    };
    pub use super::slot::{delete_slot, insert_slot, slots};
    pub use super::snapshot::{
        begun_from, complete_snapshot, count_snapshots, delete_snapshot, find_snapshot, find_snapshot_named,
        insert_snapshot, list_snapshots, referenced_templates, retire_snapshot, snapshot_ids, stale_snapshots,
    };
    pub use super::template::{
        complete_template, delete_template, find_template, insert_template, prepared_ids, retire_template,
        template_keys, templates, touch_templates,
    };
    pub use super::transition::{append, forget_transitions_before, transitions_of};
    pub use super::usage::{checkpoint, last_reading, usage, usage_of_all};
}

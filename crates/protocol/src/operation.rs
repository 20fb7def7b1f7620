//! What can be asked, and what type the question and the answer have.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number that an `Open` frame carries in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// [`machine::Configure`](crate::machine::Configure)
    Configure = 1,
    /// [`machine::SetClock`](crate::machine::SetClock)
    SetClock = 2,
    /// [`machine::Reseed`](crate::machine::Reseed)
    Reseed = 3,
    /// [`machine::ReadStats`](crate::machine::ReadStats)
    ReadStats = 4,
    /// [`machine::Shutdown`](crate::machine::Shutdown)
    Shutdown = 5,
    /// [`machine::Warm`](crate::machine::Warm)
    Warm = 6,
    /// [`machine::Watch`](crate::machine::Watch)
    Watch = 7,
    /// [`exec::Exec`](crate::exec::Exec)
    Exec = 16,
    /// [`files::ReadFile`](crate::files::ReadFile)
    ReadFile = 32,
    /// [`files::WriteFile`](crate::files::WriteFile)
    WriteFile = 33,
    /// [`files::Stat`](crate::files::Stat)
    Stat = 34,
    /// [`files::List`](crate::files::List)
    List = 35,
    /// [`files::Move`](crate::files::Move)
    Move = 36,
    /// [`files::Delete`](crate::files::Delete)
    Delete = 37,
    /// [`files::MakeDirectory`](crate::files::MakeDirectory)
    MakeDirectory = 38,
    /// [`files::Archive`](crate::files::Archive)
    Archive = 39,
}

impl Operation {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 16] = [
        Self::Configure,
        Self::SetClock,
        Self::Reseed,
        Self::ReadStats,
        Self::Shutdown,
        Self::Warm,
        Self::Watch,
        Self::Exec,
        Self::ReadFile,
        Self::WriteFile,
        Self::Stat,
        Self::List,
        Self::Move,
        Self::Delete,
        Self::MakeDirectory,
        Self::Archive,
    ];

    /// The operation with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| *operation as u8 == number)
    }

    /// Its name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::SetClock => "set clock",
            Self::Reseed => "reseed",
            Self::ReadStats => "read stats",
            Self::Shutdown => "shutdown",
            Self::Warm => "warm",
            Self::Watch => "watch",
            Self::Exec => "exec",
            Self::ReadFile => "read file",
            Self::WriteFile => "write file",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Move => "move",
            Self::Delete => "delete",
            Self::MakeDirectory => "make directory",
            Self::Archive => "archive",
        }
    }
}

/// A request: the JSON of an `Open` frame, and what its `Result` frame will hold.
pub trait Request: Serialize + DeserializeOwned {
    /// The operation that carries it.
    const OPERATION: Operation;
    /// The payload of the `Result`.
    type Answer: Serialize + DeserializeOwned;
}

macro_rules! requests {
    ($($operation:ident: $request:ty => $answer:ty;)*) => {
        $(impl Request for $request {
            const OPERATION: Operation = Operation::$operation;
            type Answer = $answer;
        })*
    };
}

requests! {
    Configure: crate::machine::Configure => crate::machine::Configured;
    SetClock: crate::machine::SetClock => crate::machine::ClockSet;
    Reseed: crate::machine::Reseed => crate::machine::Reseeded;
    ReadStats: crate::machine::ReadStats => crate::machine::Stats;
    Shutdown: crate::machine::Shutdown => crate::machine::ShuttingDown;
    Warm: crate::machine::Warm => crate::machine::Warmed;
    Watch: crate::machine::Watch => crate::machine::Watched;
    Exec: crate::exec::Exec => crate::exec::Ended;
    ReadFile: crate::files::ReadFile => crate::files::Transferred;
    WriteFile: crate::files::WriteFile => crate::files::Transferred;
    Stat: crate::files::Stat => crate::files::Status;
    List: crate::files::List => crate::files::Listed;
    Move: crate::files::Move => crate::files::Done;
    Delete: crate::files::Delete => crate::files::Done;
    MakeDirectory: crate::files::MakeDirectory => crate::files::Done;
    Archive: crate::files::Archive => crate::files::Archived;
}

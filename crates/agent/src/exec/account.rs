//! Users and groups: `/etc/passwd` and `/etc/group` of the guest, read anew each time because any command may
//! change them.

use std::io::Read as _;
use std::path::Path;

use hutch_protocol::{Code, Failure};

/// The account that a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    /// User.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Further groups.
    pub(crate) groups: Vec<u32>,
    /// Name; the number as text for a user that has none.
    pub(crate) name: String,
    /// Home directory.
    pub(crate) home: Vec<u8>,
    /// Login shell.
    pub(crate) shell: Vec<u8>,
}

/// Bytes of an account file that are read; what lies behind does not exist.
const LIMIT: u64 = 1 << 20;

impl Account {
    /// What commands run as when nobody is named. Needs no file, which a broken guest may not have.
    pub(crate) fn root() -> Self {
        Self {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            name: "root".to_owned(),
            home: b"/root".to_vec(),
            shell: b"/bin/sh".to_vec(),
        }
    }

    /// The account that `name`, `uid`, `name:group` or `uid:gid` means; group and user may each be a name or
    /// a number. A number needs no entry: such a user has its number as group, `/` as home and no further
    /// groups.
    pub(crate) fn find(specification: &str) -> Result<Self, Failure> {
        Self::find_in(specification, &read("/etc/passwd".as_ref()), &read("/etc/group".as_ref()))
    }

    fn find_in(specification: &str, passwd: &[u8], group: &[u8]) -> Result<Self, Failure> {
        let (user, wanted_group) = match specification.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (specification, None),
        };
        let mut account = Self::user(user, passwd)
            .ok_or_else(|| Failure::new(Code::UserNotFound, format!("user {user:?}: no such user in /etc/passwd")))?;
        match wanted_group {
            Some(wanted) => {
                account.gid = group_id(wanted, group).ok_or_else(|| {
                    Failure::new(Code::UserNotFound, format!("group {wanted:?}: no such group in /etc/group"))
                })?;
            }
            None => account.groups = groups_of(&account.name, group),
        }
        Ok(account)
    }

    fn user(user: &str, passwd: &[u8]) -> Option<Self> {
        let number = user.parse::<u32>().ok().filter(|number| *number != u32::MAX);
        let entry = lines(passwd).map(|line| fields(line)).find(|fields| {
            let named = !user.is_empty() && fields.first() == Some(&user.as_bytes());
            let numbered = number.is_some() && fields.get(2).and_then(|uid| parse(uid)) == number;
            (named || numbered) && fields.len() >= 4
        });
        if let Some(entry) = entry {
            let field = |index: usize, default: &[u8]| {
                entry.get(index).filter(|field| !field.is_empty()).map_or(default, |field| *field).to_vec()
            };
            return Some(Self {
                uid: parse(entry[2])?,
                gid: parse(entry[3])?,
                groups: Vec::new(),
                name: String::from_utf8_lossy(entry[0]).into_owned(),
                home: field(5, b"/"),
                shell: field(6, b"/bin/sh"),
            });
        }
        number.map(|number| Self {
            uid: number,
            gid: number,
            groups: Vec::new(),
            name: number.to_string(),
            home: b"/".to_vec(),
            shell: b"/bin/sh".to_vec(),
        })
    }
}

fn group_id(wanted: &str, group: &[u8]) -> Option<u32> {
    let named = lines(group)
        .map(|line| fields(line))
        .find(|fields| !wanted.is_empty() && fields.first() == Some(&wanted.as_bytes()));
    named.and_then(|fields| parse(fields.get(2)?)).or_else(|| wanted.parse().ok().filter(|gid| *gid != u32::MAX))
}

fn groups_of(name: &str, group: &[u8]) -> Vec<u32> {
    lines(group)
        .map(|line| fields(line))
        .filter(|fields| {
            fields.get(3).is_some_and(|members| members.split(|byte| *byte == b',').any(|one| one == name.as_bytes()))
        })
        .filter_map(|fields| parse(fields.get(2)?))
        .take(64)
        .collect()
}

fn lines(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    file.split(|byte| *byte == b'\n')
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b':').collect()
}

fn parse(number: &[u8]) -> Option<u32> {
    std::str::from_utf8(number).ok()?.parse().ok().filter(|number| *number != u32::MAX)
}

/// The file's content; nothing if it is not there or is no plain file.
fn read(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
    if let Ok(fd) = rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        let file = std::fs::File::from(fd);
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            // A file that cannot be read to its end has fewer users.
            let _ = file.take(LIMIT).read_to_end(&mut content);
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/bash\nann:x:1000:1001:Ann,,,:/home/ann:/bin/zsh\n\
        broken:x\nodd:x:7:8::\n:x:9:9::/:\n";
    const GROUP: &[u8] = b"root:x:0:\nann:x:1001:\nwheel:x:10:bob,ann\naudio:x:29:ann\nbroken\n";

    fn find(specification: &str) -> Result<(u32, u32, Vec<u32>, String), Code> {
        Account::find_in(specification, PASSWD, GROUP)
            .map(|account| (account.uid, account.gid, account.groups, String::from_utf8(account.home).unwrap()))
            .map_err(|failure| failure.code)
    }

    #[test]
    fn names_and_numbers_with_and_without_group() {
        assert_eq!(find("ann"), Ok((1000, 1001, vec![10, 29], "/home/ann".to_owned())));
        assert_eq!(find("1000"), find("ann"));
        assert_eq!(find("ann:wheel"), Ok((1000, 10, vec![], "/home/ann".to_owned())));
        assert_eq!(find("0:0"), Ok((0, 0, vec![], "/root".to_owned())));
        assert_eq!(find("4242"), Ok((4242, 4242, vec![], "/".to_owned())));
        assert_eq!(find("4242:7"), Ok((4242, 7, vec![], "/".to_owned())));
        assert_eq!(find("odd"), Ok((7, 8, vec![], "/".to_owned())));
    }

    #[test]
    fn what_is_not_there_is_said() {
        for specification in ["", ":", "nobody-such", "broken", "-1", "4294967295", "ann:", "ann:nope", "ann:-1"] {
            assert_eq!(find(specification), Err(Code::UserNotFound), "{specification}");
        }
    }

    #[test]
    fn root_needs_no_file() {
        assert_eq!(Account::find_in("0", b"", b"").map(|account| account.uid), Ok(0));
        assert_eq!(Account::root().uid, 0);
    }
}

//! Names for sandboxes whose owners gave none: `<adjective>-<animal>`.

use hutch_units::SandboxName;
use rustix::rand::{GetRandomFlags, getrandom};

const ADJECTIVES: [&str; 64] = [
    "able", "agile", "amber", "ample", "azure", "bold", "brave", "bright", "brisk", "calm", "candid", "cheery",
    "civil", "clear", "clever", "coral", "cosy", "crisp", "dapper", "deft", "eager", "early", "fair", "fleet", "fond",
    "frank", "fresh", "gentle", "glad", "golden", "grand", "hardy", "honest", "humble", "jolly", "keen", "kind",
    "lively", "loyal", "lucid", "merry", "mild", "modest", "neat", "nimble", "noble", "patient", "placid", "plucky",
    "proud", "quick", "quiet", "ready", "robust", "sage", "silver", "sleek", "smart", "solid", "steady", "sunny",
    "swift", "tidy", "witty",
];

const ANIMALS: [&str; 64] = [
    "alpaca", "badger", "beaver", "bison", "bobcat", "camel", "caribou", "cheetah", "civet", "condor", "cougar",
    "coyote", "crane", "curlew", "dingo", "dolphin", "donkey", "eagle", "egret", "falcon", "ferret", "finch", "gannet",
    "gazelle", "gecko", "gibbon", "hamster", "hare", "heron", "ibex", "ibis", "jackal", "jaguar", "kestrel", "koala",
    "lemur", "leopard", "llama", "lynx", "magpie", "marmot", "marten", "mole", "moose", "newt", "ocelot", "osprey",
    "otter", "panda", "pelican", "penguin", "plover", "puffin", "quail", "rabbit", "raven", "seal", "stork", "swan",
    "tapir", "tern", "turtle", "walrus", "wombat",
];

/// Names to try in order: some short ones, then some with a number, of which one will be free.
pub(crate) fn candidates() -> Vec<SandboxName> {
    let mut random = [0_u8; 24];
    // Without random bytes the names are the same each time; the numbers below keep them apart all the same.
    let filled = getrandom(&mut random, GetRandomFlags::NONBLOCK).unwrap_or(0);
    random[filled..].fill(0);
    let plain = random.chunks_exact(2).take(6).map(|pair| plain_name(pair[0], pair[1]));
    let numbered = random[12..]
        .chunks_exact(4)
        .map(|four| format!("{}-{}", plain_name(four[0], four[1]), u16::from_le_bytes([four[2], four[3]])));
    let names = plain.chain(numbered);
    names.map(|name| SandboxName::parse(&name).expect("words and digits with hyphens between are a name")).collect()
}

fn plain_name(adjective: u8, animal: u8) -> String {
    let pick = |words: &[&'static str; 64], byte: u8| words[usize::from(byte) % words.len()];
    format!("{}-{}", pick(&ADJECTIVES, adjective), pick(&ANIMALS, animal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct_and_names_are_short() {
        let distinct = |words: &[&str]| words.iter().collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!((distinct(&ADJECTIVES), distinct(&ANIMALS)), (64, 64));
        for name in candidates() {
            assert!(name.as_str().len() <= 22, "{name}");
        }
    }

    #[test]
    fn two_calls_differ() {
        assert_ne!(candidates(), candidates());
    }
}

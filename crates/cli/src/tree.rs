//! Things that came from one another, as branches.

use std::collections::{BTreeMap, BTreeSet};

/// Items below the one that each came from.
#[derive(Debug)]
pub(crate) struct Tree<'a, T, K> {
    /// In the order in which siblings stand.
    items: Vec<(K, &'a T)>,
    children: BTreeMap<K, Vec<(K, &'a T)>>,
    roots: Vec<(K, &'a T)>,
}

impl<'a, T, K: Copy + Ord> Tree<'a, T, K> {
    /// A tree of items in the order in which siblings shall stand. One whose parent is not among them is a root.
    pub(crate) fn new(items: Vec<&'a T>, key: impl Fn(&T) -> K, parent: impl Fn(&T) -> Option<K>) -> Self {
        let keys: BTreeSet<K> = items.iter().map(|item| key(item)).collect();
        let mut tree = Self { items: Vec::new(), children: BTreeMap::new(), roots: Vec::new() };
        for item in items {
            let entry = (key(item), item);
            match parent(item).filter(|parent| keys.contains(parent)) {
                Some(parent) => tree.children.entry(parent).or_default().push(entry),
                None => tree.roots.push(entry),
            }
            tree.items.push(entry);
        }
        tree
    }

    /// Every item with the lines that lead to it.
    pub(crate) fn rows(&self) -> Vec<(String, &'a T)> {
        let (mut rows, mut seen) = (Vec::with_capacity(self.items.len()), BTreeSet::new());
        // What no root leads to is in a circle, which is entered where it is oldest.
        for (key, item) in self.roots.iter().chain(&self.items) {
            // Below each other without recursion: a chain may be long.
            let mut stack = vec![(*key, *item, String::new(), String::new())];
            while let Some((key, item, branch, indent)) = stack.pop() {
                if !seen.insert(key) {
                    continue;
                }
                rows.push((branch, item));
                let children = self.children.get(&key).map_or(&[][..], Vec::as_slice);
                for (position, (child, item)) in children.iter().enumerate().rev() {
                    let last = position + 1 == children.len();
                    let (fork, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
                    stack.push((*child, *item, format!("{indent}{fork}"), format!("{indent}{below}")));
                }
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(items: &[(u32, Option<u32>)]) -> String {
        let tree = Tree::new(items.iter().collect(), |item| item.0, |item| item.1);
        tree.rows().into_iter().map(|(branch, item)| format!("{branch}{}\n", item.0)).collect()
    }

    #[test]
    fn branches_lead_to_children() {
        let items = [(1, None), (2, Some(1)), (3, Some(2)), (4, Some(1)), (5, None), (6, Some(5))];
        assert_eq!(drawn(&items), "1\n├─ 2\n│  └─ 3\n└─ 4\n5\n└─ 6\n");
    }

    #[test]
    fn a_missing_parent_makes_a_root_and_a_circle_loses_nothing() {
        assert_eq!(drawn(&[(2, Some(1)), (3, Some(2))]), "2\n└─ 3\n");
        assert_eq!(drawn(&[(1, Some(2)), (2, Some(1)), (3, Some(3))]), "1\n└─ 2\n3\n");
    }

    #[test]
    fn a_long_chain_is_no_matter() {
        let chain: Vec<(u32, Option<u32>)> = (1u32..3000).map(|number| (number, number.checked_sub(1))).collect();
        assert_eq!(drawn(&chain).lines().count(), 2999);
    }
}

//! Shapes: the sizes a sandbox comes in.

use crate::Mebibytes;

/// A size of sandbox: processors, memory and default disk, under the id that the API uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The id on the wire, for example `s-1vcpu-256mb`.
    pub id: &'static str,
    /// Virtual processors; on the user-mode engine a share of that many host processors.
    pub vcpu: u32,
    /// Guest memory.
    pub memory: Mebibytes,
    /// Size of the writable disk when the caller names none.
    pub default_disk: Mebibytes,
    /// Upper bound of processor time in per cent of one processor; `None` is `vcpu` × 100.
    pub cpu_quota_percent: Option<u32>,
}

/// No shape has this id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown shape {id:?}, choices: [{}]", SHAPES.map(|shape| shape.id).join(" "))]
pub struct ShapeError {
    /// The id that was asked for.
    pub id: String,
}

const fn shape(id: &'static str, vcpu: u32, memory_mib: u32) -> Shape {
    Shape { id, vcpu, memory: Mebibytes(memory_mib), default_disk: Mebibytes(10240), cpu_quota_percent: None }
}

/// Every shape there is, smallest first. The ids are those of the CreateOS catalogue.
pub const SHAPES: [Shape; 9] = [
    shape("s-1vcpu-256mb", 1, 256),
    shape("s-1vcpu-512mb", 1, 512),
    shape("s-1vcpu-1gb", 1, 1024),
    shape("s-1vcpu-2gb", 1, 2048),
    shape("s-2vcpu-2gb", 2, 2048),
    shape("s-2vcpu-4gb", 2, 4096),
    shape("s-4vcpu-4gb", 4, 4096),
    shape("s-4vcpu-8gb", 4, 8192),
    shape("s-8vcpu-16gb", 8, 16384),
];

impl Shape {
    /// The shape with this id; the error lists the choices.
    pub fn find(id: &str) -> Result<Self, ShapeError> {
        let found = SHAPES.iter().find(|shape| shape.id == id);
        found.copied().ok_or_else(|| ShapeError { id: id.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_shape_lists_the_choices() {
        let error = Shape::find("s-9").unwrap_err().to_string();
        assert!(error.contains("choices: [s-1vcpu-256mb "), "{error}");
        assert!(SHAPES.iter().all(|shape| Shape::find(shape.id) == Ok(*shape)));
    }
}

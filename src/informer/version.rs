//! Resource versions: where in the source's history an object or a list stands.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A version as the source gave it: opaque, but comparable when it is a decimal number.
///
/// A number without leading zeros that fits 64 bits is kept as a number, without an allocation; anything else as text.
/// Either way it is sent back to the source as it came. The empty version means "none".
///
/// ```
/// use delta_fifo::informer::ResourceVersion;
/// use std::cmp::Ordering;
///
/// let old = ResourceVersion::from("9");
/// let new = ResourceVersion::from(10);
/// assert_eq!(old.compare(&new), Some(Ordering::Less));
/// assert_eq!(new.to_string(), "10");
/// assert!(ResourceVersion::UNSET.is_unset());
/// // Two texts that are no numbers are equal or not, and nothing else is known about them.
/// assert_eq!(ResourceVersion::from("a").compare(&ResourceVersion::from("b")), None);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ResourceVersion(Repr);

#[derive(Clone, PartialEq, Eq, Hash, Default)]
enum Repr {
    #[default]
    Unset,
    Number(u64),
    /// Not empty, and not what `Number` prints.
    Text(Arc<str>),
}

impl ResourceVersion {
    /// No version.
    pub const UNSET: Self = ResourceVersion(Repr::Unset);
    /// Version 0. For a list it means "whatever you have at hand, it need not be the newest", as in Kubernetes.
    pub const ANY: Self = ResourceVersion(Repr::Number(0));

    /// Whether there is no version.
    ///
    /// ```
    /// use delta_fifo::informer::ResourceVersion;
    /// assert!(ResourceVersion::from("").is_unset());
    /// assert!(!ResourceVersion::from(0).is_unset());
    /// ```
    pub fn is_unset(&self) -> bool {
        matches!(self.0, Repr::Unset)
    }

    /// The version as a number, if it is one that fits 64 bits.
    ///
    /// ```
    /// use delta_fifo::informer::ResourceVersion;
    /// assert_eq!(ResourceVersion::from("42").as_u64(), Some(42));
    /// assert_eq!(ResourceVersion::from("042").as_u64(), None);
    /// ```
    pub fn as_u64(&self) -> Option<u64> {
        match self.0 {
            Repr::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Which of two versions is older. Unset is older than everything; numbers of any length compare as numbers;
    /// other texts are equal or not comparable (`None`).
    ///
    /// ```
    /// use delta_fifo::informer::ResourceVersion;
    /// use std::cmp::Ordering::*;
    ///
    /// let huge = ResourceVersion::from("340282366920938463463374607431768211455");
    /// assert_eq!(huge.compare(&7.into()), Some(Greater));
    /// assert_eq!(ResourceVersion::UNSET.compare(&7.into()), Some(Less));
    /// ```
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Repr::Number(a), Repr::Number(b)) => Some(a.cmp(b)),
            (a, b) if a == b => Some(Ordering::Equal),
            (Repr::Unset, _) => Some(Ordering::Less),
            (_, Repr::Unset) => Some(Ordering::Greater),
            _ => {
                let (a, b) = (self.to_string(), other.to_string());
                let (a, b) = (digits(&a)?, digits(&b)?);
                Some(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
            }
        }
    }

    /// Whether a reader that stands at `self` has seen `wanted`: newer, equal, or `wanted` is unset.
    ///
    /// ```
    /// use delta_fifo::informer::ResourceVersion;
    /// assert!(ResourceVersion::from(10).has_reached(&9.into()));
    /// assert!(!ResourceVersion::from(8).has_reached(&9.into()));
    /// ```
    pub fn has_reached(&self, wanted: &Self) -> bool {
        wanted.is_unset() || matches!(self.compare(wanted), Some(Ordering::Equal | Ordering::Greater))
    }
}

/// The digits of a decimal number, without leading zeros.
fn digits(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.trim_start_matches('0'))
}

impl From<u64> for ResourceVersion {
    fn from(number: u64) -> Self {
        ResourceVersion(Repr::Number(number))
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        // "+7" and "007" parse as numbers but would not be printed as they came.
        let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text.len() == 1 || !text.starts_with('0'));
        match text.parse() {
            _ if text.is_empty() => ResourceVersion::UNSET,
            Ok(number) if canonical => ResourceVersion(Repr::Number(number)),
            _ => ResourceVersion(Repr::Text(text.into())),
        }
    }
}

impl From<String> for ResourceVersion {
    fn from(text: String) -> Self {
        ResourceVersion::from(&*text)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Unset => Ok(()),
            Repr::Number(number) => number.fmt(f),
            Repr::Text(text) => text.fmt(f),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// An object that knows its resource version.
///
/// The version tells a real change from an echo: a relist that brings an object with the version the store has is no
/// news. Objects without versions leave the method out; then every change counts as real.
///
/// ```
/// use delta_fifo::informer::{ResourceVersion, Versioned};
///
/// struct Pod { version: u64 }
///
/// impl Versioned for Pod {
///     fn resource_version(&self) -> ResourceVersion {
///         self.version.into()
///     }
/// }
/// assert_eq!(Pod { version: 7 }.resource_version().as_u64(), Some(7));
/// ```
pub trait Versioned {
    /// The version of the object's last change; [`ResourceVersion::UNSET`] if it has none.
    fn resource_version(&self) -> ResourceVersion {
        ResourceVersion::UNSET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_as_it_went_in() {
        for text in ["", "0", "00", "7", "007", "+7", "18446744073709551615", "18446744073709551616", "a-1"] {
            assert_eq!(ResourceVersion::from(text).to_string(), text);
        }
    }

    #[test]
    fn numbers_beyond_64_bits_compare_as_numbers() {
        let small = ResourceVersion::from("18446744073709551615");
        let large = ResourceVersion::from("18446744073709551616");
        assert_eq!(small.compare(&large), Some(Ordering::Less));
        assert_eq!(ResourceVersion::from("007").compare(&7.into()), Some(Ordering::Equal));
        assert_eq!(ResourceVersion::from("x").compare(&7.into()), None);
        assert!(!ResourceVersion::from("x").has_reached(&"y".into()));
    }
}

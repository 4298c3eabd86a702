//! Index functions, before they are in a store.

use std::fmt;
use std::sync::Arc;

use super::state::IndexFunc;
use crate::key::BoxError;

/// Index functions with their names, for [`Store::add_indexers`](crate::informer::Store::add_indexers) and the informer's builder.
///
/// ```
/// use delta_fifo::informer::Indexers;
/// let indexers = Indexers::new().with("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()]));
/// # let _ = indexers;
/// ```
pub struct Indexers<T> {
    pub(super) funcs: Vec<(Arc<str>, IndexFunc<T>)>,
}

impl<T> Indexers<T> {
    /// None yet.
    ///
    /// ```
    /// let none = delta_fifo::informer::Indexers::<u32>::new();
    /// # let _ = none;
    /// ```
    pub fn new() -> Self {
        Indexers { funcs: Vec::new() }
    }

    /// And this one.
    ///
    /// ```
    /// use delta_fifo::informer::Indexers;
    /// let indexers = Indexers::new().with("parity", |n: &u32| Ok::<_, &str>(vec![(n % 2).to_string()]));
    /// # let _ = indexers;
    /// ```
    #[must_use]
    pub fn with<E: Into<BoxError>>(
        mut self,
        name: impl Into<Arc<str>>,
        func: impl Fn(&T) -> Result<Vec<String>, E> + Send + Sync + 'static,
    ) -> Self {
        self.funcs.push((name.into(), Arc::new(move |object| func(object).map_err(Into::into))));
        self
    }
}

impl<T> Default for Indexers<T> {
    fn default() -> Self {
        Indexers::new()
    }
}

impl<T> fmt::Debug for Indexers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.funcs.iter().map(|(name, _)| name)).finish()
    }
}

//! The producers' side: add, update, delete, replace, resync.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use crate::delta::{DeletedFinalStateUnknown, Delta};
use crate::error::{PushError, ReplaceError, TombstoneFullError, TryPushError, TryReplaceError};
use crate::key::KeyError;

use super::state::Push;
use super::{Inner, Locked, MutexFifo, Wait};

impl<T, K: Clone + Eq + Hash, S: BuildHasher + Clone> MutexFifo<T, K, S> {
    /// Reports a new object. Waits at a limit.
    ///
    /// # Errors
    ///
    /// The key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap()[0].delta_type().as_str(), "Added");
    /// ```
    pub fn add(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.put(object.into(), Delta::Added, Wait::Forever).map_err(waited)
    }

    /// Reports a changed object. Waits at a limit.
    ///
    /// # Errors
    ///
    /// The key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.update(7).unwrap();
    /// assert_eq!(fifo.get(&7).unwrap()[0].delta_type().as_str(), "Updated");
    /// ```
    pub fn update(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.put(object.into(), Delta::Updated, Wait::Forever).map_err(waited)
    }

    /// Reports a deleted object; ignored where nothing of it is queued, claimed or known. Waits at a limit.
    ///
    /// # Errors
    ///
    /// The key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.delete(7).unwrap();
    /// assert!(fifo.is_empty());
    /// ```
    pub fn delete(&self, object: impl Into<Arc<T>>) -> Result<(), PushError<T>> {
        self.remove(object.into(), Wait::Forever).map_err(waited)
    }

    /// Reports that an object is gone whose last state nobody saw. Waits at a limit.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.add(7).unwrap();
    /// fifo.delete_final_state_unknown(7, None);
    /// assert_eq!(fifo.get(&7).unwrap().len(), 2);
    /// ```
    pub fn delete_final_state_unknown(&self, key: K, object: Option<Arc<T>>) {
        let mut inner = self.lock();
        let push = self.step(&mut inner, |state| state.prepare_tombstone(key, object));
        let admitted = self.admit_delete(inner, push, Wait::Forever);
        assert!(admitted.is_ok(), "a blocking call waits for room");
    }

    /// [`delete_final_state_unknown`](Self::delete_final_state_unknown) that does not wait.
    ///
    /// # Errors
    ///
    /// A limit is reached: key and object come back.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.try_delete_final_state_unknown(7, None).unwrap();
    /// ```
    pub fn try_delete_final_state_unknown(
        &self,
        key: K,
        object: Option<Arc<T>>,
    ) -> Result<(), TombstoneFullError<T, K>> {
        let mut inner = self.lock();
        let push = self.step(&mut inner, |state| state.prepare_tombstone(key, object));
        self.admit_delete(inner, push, Wait::No).map_err(|push| {
            let tombstone = DeletedFinalStateUnknown { key: push.key, object: push.delta.object().cloned() };
            TombstoneFullError { tombstone }
        })
    }

    /// [`add`](Self::add) that does not wait.
    ///
    /// # Errors
    ///
    /// A limit is reached, or the key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.try_add(7).unwrap();
    /// ```
    pub fn try_add(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.put(object.into(), Delta::Added, Wait::No)
    }

    /// [`update`](Self::update) that does not wait.
    ///
    /// # Errors
    ///
    /// A limit is reached, or the key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.try_update(7).unwrap();
    /// ```
    pub fn try_update(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.put(object.into(), Delta::Updated, Wait::No)
    }

    /// [`delete`](Self::delete) that does not wait.
    ///
    /// # Errors
    ///
    /// A limit is reached, or the key function or the transformer failed.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.try_delete(7).unwrap();
    /// ```
    pub fn try_delete(&self, object: impl Into<Arc<T>>) -> Result<(), TryPushError<T>> {
        self.remove(object.into(), Wait::No)
    }

    fn put(&self, object: Arc<T>, delta: fn(Arc<T>) -> Delta<T, K>, wait: Wait) -> Result<(), TryPushError<T>> {
        let mut inner = self.lock();
        let push = self.step(&mut inner, |state| state.prepare_put(&self.options, &object, delta))?;
        let ready = |inner: &mut Inner<T, K, S>| inner.state.has_room(&self.options, &push).then_some(());
        let (mut inner, room) = self.wait_until(inner, wait, ready);
        if room.is_none() {
            return Err(TryPushError::Full(object));
        }
        inner.state.put(&self.options, push);
        self.wake(&inner);
        Ok(())
    }

    fn remove(&self, object: Arc<T>, wait: Wait) -> Result<(), TryPushError<T>> {
        let mut inner = self.lock();
        match self.step(&mut inner, |state| state.prepare_delete(&self.options, &object))? {
            Some(push) => self.admit_delete(inner, push, wait).map_err(|_| TryPushError::Full(object)),
            None => Ok(()),
        }
    }

    /// Whether there is anything to delete is asked again after each wait.
    fn admit_delete(&self, inner: Locked<'_, T, K, S>, push: Push<T, K>, wait: Wait) -> Result<(), Push<T, K>> {
        let (mut inner, room) = self.wait_until(inner, wait, |inner| {
            let state = &inner.state;
            (!state.exists(&self.options, &push.key) || state.has_room(&self.options, &push)).then_some(())
        });
        if room.is_none() {
            return Err(push);
        }
        inner.state.delete(&self.options, push);
        self.wake(&inner);
        Ok(())
    }

    /// Makes `list` all there is: what is not in it is deleted. All or nothing. Waits while a limit is reached, and
    /// then goes in as a whole, whatever its size.
    ///
    /// # Errors
    ///
    /// An object was refused. Nothing was queued, and the list comes back.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.replace(vec![1.into(), 2.into()]).unwrap();
    /// fifo.replace(vec![2.into()]).unwrap();
    /// assert!(fifo.get(&1).unwrap().newest().unwrap().is_deleted());
    /// ```
    pub fn replace(&self, list: Vec<Arc<T>>) -> Result<(), ReplaceError<T>> {
        match self.replace_or_wait(list, Wait::Forever) {
            Ok(()) => Ok(()),
            Err(TryReplaceError::Refused(error)) => Err(error),
            Err(TryReplaceError::Full(_)) => unreachable!("a blocking call waits for room"),
        }
    }

    /// [`replace`](Self::replace) that does not wait.
    ///
    /// # Errors
    ///
    /// A limit is reached, or an object was refused. Nothing was queued, and the list comes back.
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n)).build();
    /// fifo.try_replace(vec![1.into(), 2.into()]).unwrap();
    /// ```
    pub fn try_replace(&self, list: Vec<Arc<T>>) -> Result<(), TryReplaceError<T>> {
        self.replace_or_wait(list, Wait::No)
    }

    fn replace_or_wait(&self, list: Vec<Arc<T>>, wait: Wait) -> Result<(), TryReplaceError<T>> {
        let inner = self.lock();
        if matches!(wait, Wait::No) && !inner.state.has_room_for_replace(&self.options) {
            return Err(TryReplaceError::Full(list));
        }
        let prepared = match inner.state.prepare_replace(&self.options, &list) {
            Ok(prepared) => prepared,
            Err((index, cause)) => return Err(TryReplaceError::Refused(ReplaceError { list, index, cause })),
        };
        let ready = |inner: &mut Inner<T, K, S>| inner.state.has_room_for_replace(&self.options).then_some(());
        let (mut inner, _) = self.wait_until(inner, wait, ready);
        inner.state.replace(&self.options, prepared);
        self.wake(&inner);
        Ok(())
    }

    /// Queues a `Sync` for each known object that is neither queued nor claimed. Limits do not apply.
    ///
    /// # Errors
    ///
    /// The key function refused a known object; the Syncs before it stay queued (A8.4).
    ///
    /// ```
    /// # let fifo = delta_fifo::baseline::MutexFifo::<u32, u32>::builder_with_key_fn(|n: &u32| Ok::<_, String>(*n))
    /// #     .embedded_store().build();
    /// fifo.add(7).unwrap();
    /// fifo.try_pop().unwrap().done();
    /// fifo.resync().unwrap();
    /// assert_eq!(fifo.get(&7).unwrap()[0].delta_type().as_str(), "Sync");
    /// ```
    pub fn resync(&self) -> Result<(), KeyError<T>> {
        let mut inner = self.lock();
        let result = inner.state.resync(&self.options);
        self.wake(&inner);
        result
    }
}

/// The error of a call that waited for room.
fn waited<T>(error: TryPushError<T>) -> PushError<T> {
    match error {
        TryPushError::Key(error) => PushError::Key(error),
        TryPushError::Transform(error) => PushError::Transform(error),
        TryPushError::Full(_) => unreachable!("a blocking call waits for room"),
    }
}

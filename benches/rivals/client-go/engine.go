package main

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// engine is one queue of client-go with the store that its consumer applies to.
type engine interface {
	// known puts the objects into the store only.
	known(objs []*object)
	add(obj *object)
	update(obj *object)
	// replace takes the list over.
	replace(list []any)
	resync()
	// consumer returns a function that waits for the next pop, applies it to
	// the store and calls handle for each key with its number of deltas. It
	// returns false once the queue is closed and drained.
	consumer(handle func(deltas int)) func() bool
	// maxConsumers is how many goroutines may run a consumer at a time.
	maxConsumers() int
	close()
	// stored is the number of objects in the store, knows asks for one key.
	stored() int
	knows(key string) bool
}

// engines in the order in which they run.
var engines = []struct {
	name string
	make func() engine
}{
	{"client-go/DeltaFIFO", newDeltaFIFO},
	{"client-go/RealFIFO", newRealFIFO},
	{"client-go/RealFIFO-informer", newInformerFIFO},
}

func makeEngine(name string) engine {
	for _, e := range engines {
		if e.name == name {
			return e.make()
		}
	}
	panic("no engine " + name)
}

// manyConsumers: the queue sets no limit of its own.
const manyConsumers = 1 << 20

// must is for calls that can only fail when this program is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// queue holds what the three engines share.
type queue struct {
	cache.Queue
	store cache.Store
}

func (q *queue) known(objs []*object) {
	for _, o := range objs {
		must(q.store.Add(o))
	}
}
func (q *queue) add(obj *object)    { must(q.Queue.Add(obj)) }
func (q *queue) update(obj *object) { must(q.Queue.Update(obj)) }
func (q *queue) replace(list []any) { must(q.Queue.Replace(list, "")) }
func (q *queue) resync()            { must(q.Queue.Resync()) }
func (q *queue) close()             { q.Queue.Close() }
func (q *queue) stored() int        { return len(q.store.ListKeys()) }
func (q *queue) knows(key string) bool {
	_, exists, err := q.store.GetByKey(key)
	must(err)
	return exists
}
func (q *queue) maxConsumers() int { return manyConsumers }

// apply is the "apply" of the workloads: a Deleted removes, the rest puts.
func (q *queue) apply(d cache.Delta) {
	if d.Type == cache.Deleted {
		must(q.store.Delete(d.Object))
	} else {
		must(q.store.Update(d.Object))
	}
}

// consumer pops one key (DeltaFIFO) or one delta (RealFIFO) at a time. Both
// run apply and handle under the lock of the queue.
func (q *queue) consumer(handle func(int)) func() bool {
	process := func(obj any, _ bool) error {
		deltas := obj.(cache.Deltas)
		for _, d := range deltas {
			q.apply(d)
		}
		handle(len(deltas))
		return nil
	}
	return func() bool {
		_, err := q.Pop(process)
		return more(err)
	}
}

func more(err error) bool {
	if err != nil && !errors.Is(err, cache.ErrFIFOClosed) {
		panic(err)
	}
	return err == nil
}

func newDeltaFIFO() engine {
	store := cache.NewStore(key)
	return &queue{store: store, Queue: cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
		KeyFunction:           key,
		KnownObjects:          store,
		EmitDeltaTypeReplaced: true,
	})}
}

func newRealFIFO() engine {
	store := cache.NewStore(key)
	return &queue{store: store, Queue: cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction:  key,
		KnownObjects: store,
	})}
}

// informerFIFO is RealFIFO with the options that this release's informers give
// it: Replace and Resync are one delta each, the lock is released around the
// handler while the queue is short, and pops come in batches.
type informerFIFO struct {
	queue
	batches cache.QueueWithBatch
	txns    cache.TransactionStore
}

func newInformerFIFO() engine {
	store := cache.NewStore(key)
	fifo := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction:           key,
		AtomicEvents:          true,
		UnlockWhileProcessing: true,
		EmitDeltaTypeBookmark: true,
	})
	return &informerFIFO{
		queue:   queue{store: store, Queue: fifo},
		batches: fifo,
		txns:    store.(cache.TransactionStore),
	}
}

// maxConsumers: PopBatch allows a single caller when it unlocks.
func (q *informerFIFO) maxConsumers() int { return 1 }

func (q *informerFIFO) consumer(handle func(int)) func() bool {
	batch := func(deltas []cache.Delta, _ bool) error {
		txns := make([]cache.Transaction, len(deltas))
		for i, d := range deltas {
			txns[i] = cache.Transaction{Type: cache.TransactionTypeUpdate, Object: d.Object}
			if d.Type == cache.Deleted {
				txns[i].Type = cache.TransactionTypeDelete
			}
		}
		if err := q.txns.Transaction(txns...); err != nil {
			return err
		}
		for range deltas {
			handle(1)
		}
		return nil
	}
	single := func(obj any, _ bool) error {
		for _, d := range obj.(cache.Deltas) {
			switch info := d.Object.(type) {
			case cache.ReplacedAllInfo:
				q.applyReplacedAll(info, handle)
			case cache.SyncAllInfo:
				for range q.store.List() {
					handle(1)
				}
			case cache.BookmarkInfo:
			default:
				q.apply(d)
				handle(1)
			}
		}
		return nil
	}
	return func() bool { return more(q.batches.PopBatch(batch, single)) }
}

// applyReplacedAll does what an informer does with the one delta of an atomic
// Replace: find the deletions, swap the store, then tell the handlers. The
// deletions come first and the objects follow in the order of the list.
func (q *informerFIFO) applyReplacedAll(info cache.ReplacedAllInfo, handle func(int)) {
	listed := make(map[string]struct{}, len(info.Objects))
	for _, o := range info.Objects {
		k, err := key(o)
		must(err)
		listed[k] = struct{}{}
	}
	var deleted []cache.DeletedFinalStateUnknown
	for _, k := range q.store.ListKeys() {
		if _, ok := listed[k]; ok {
			continue
		}
		old, exists, err := q.store.GetByKey(k)
		must(err)
		if !exists {
			panic(fmt.Sprintf("%s left the store while its only writer was looking", k))
		}
		deleted = append(deleted, cache.DeletedFinalStateUnknown{Key: k, Obj: old})
	}
	// Handlers are given the old object next to the new one, so an informer
	// has to look all of them up before the swap.
	type change struct{ old, new any }
	changes := make([]change, 0, len(info.Objects))
	for _, o := range info.Objects {
		old, _, err := q.store.Get(o)
		must(err)
		changes = append(changes, change{old, o})
	}
	must(q.store.Replace(info.Objects, info.ResourceVersion))
	for range deleted {
		handle(1)
	}
	for range changes {
		handle(1)
	}
}

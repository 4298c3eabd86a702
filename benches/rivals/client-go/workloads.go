package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bench is one workload on one engine. Each runs in a process of its own.
type bench struct {
	workload string
	engine   string
	scale    float64
	shared   bool
	notes    string
	emit     func(result)
}

// workloads in the order in which they run.
var workloads = []struct {
	name string
	run  func(*bench)
}{
	{"W1", (*bench).bulk},
	{"W2", func(b *bench) { b.steady(10_000, true, 1) }},
	{"W2u", func(b *bench) { b.steady(b.scaled(1_000_000), false, 1) }},
	{"W3", func(b *bench) { b.steady(10_000, true, 2) }},
	{"W3b", (*bench).roundTrip},
	{"W4", (*bench).busyHandler},
	{"W5", (*bench).slowHandlers},
	{"W6", func(b *bench) { b.stall("replace_ms", false, true) }},
	{"W6q", func(b *bench) { b.stall("replace_ms", true, true) }},
	{"W7", func(b *bench) { b.stall("resync_ms", false, false) }},
	{"W7q", func(b *bench) { b.stall("resync_ms", true, false) }},
	{"W8", (*bench).memory},
}

// scaled shrinks a count for quick runs, but leaves enough to run into the
// interesting paths.
func (b *bench) scaled(n int) int { return max(int(float64(n)*b.scale), min(n, 1_000)) }

func (b *bench) report(metric string, value float64, unit string) {
	b.emit(result{b.workload, b.engine, metric, value, unit, b.scale, b.notes})
}

// note goes with every figure reported after it.
func (b *bench) note(format string, args ...any) { b.notes = fmt.Sprintf(format, args...) }

func (b *bench) check(what string, got, want int) {
	if got != want {
		panic(fmt.Sprintf("%s on %s: %s: got %d, want %d; these figures would be worthless", b.workload, b.engine, what, got, want))
	}
}

// updateOf is the object that a producer hands over for an update of o.
func (b *bench) updateOf(o *object) *object {
	if b.shared {
		return o
	}
	return o.fresh()
}

// W1: one thread adds new keys, then pops and applies all of them.
func (b *bench) bulk() {
	objs := objects(b.scaled(1_000_000))
	e := makeEngine(b.engine)
	handled := 0
	pop := e.consumer(func(deltas int) { handled += deltas })
	runtime.GC()

	begin := time.Now()
	for _, o := range objs {
		e.add(o)
	}
	added := time.Since(begin)
	begin = time.Now()
	for handled < len(objs) {
		pop()
	}
	popped := time.Since(begin)

	b.check("objects in the store", e.stored(), len(objs))
	b.report("add_ns", float64(added)/float64(len(objs)), "ns")
	b.report("pop_ns", float64(popped)/float64(len(objs)), "ns")
}

// W2, W2u, W3: updates of known keys from as many producers as consumers. The
// clock runs until the last update has been applied.
func (b *bench) steady(keys int, skewed bool, threads int) {
	updates := b.scaled(4_000_000)
	objs := objects(keys)
	e := makeEngine(b.engine)
	e.known(objs)

	rng, ranks := &splitMix64{seed}, newZipf(keys)
	indices := make([][]uint32, threads)
	for p := range indices {
		indices[p] = make([]uint32, updates/threads)
		for i := range indices[p] {
			k := 0
			if skewed {
				k = ranks.draw(rng)
			} else {
				k = rng.below(keys)
			}
			// Producer p has the keys that are p modulo the number of them.
			indices[p][i] = uint32((k/threads*threads + p) % keys)
		}
	}
	updates = updates / threads * threads

	consumers := min(threads, e.maxConsumers())
	if consumers < threads {
		b.note("%d producers, but 1 consumer: it allows no more when it unlocks", threads)
	}
	var handled, pops atomic.Int64
	var producing, consuming sync.WaitGroup
	start := make(chan struct{})
	for p := range indices {
		producing.Go(func() {
			<-start
			for _, i := range indices[p] {
				e.update(b.updateOf(objs[i]))
			}
		})
	}
	for range consumers {
		consuming.Go(func() {
			n, pop := 0, 0
			next := e.consumer(func(deltas int) { n += deltas })
			<-start
			for next() {
				pop++
			}
			handled.Add(int64(n))
			pops.Add(int64(pop))
		})
	}
	runtime.GC()

	begin := time.Now()
	close(start)
	producing.Wait()
	e.close()
	consuming.Wait()
	elapsed := time.Since(begin)

	b.check("deltas handled", int(handled.Load()), updates)
	b.check("objects in the store", e.stored(), keys)
	b.report("updates_per_s", float64(updates)/elapsed.Seconds(), "1/s")
	b.report("pops", float64(pops.Load()), "1")
}

// W3b: one thread updates a key and pops it again.
func (b *bench) roundTrip() {
	trips := b.scaled(4_000_000)
	objs := objects(10_000)
	e := makeEngine(b.engine)
	e.known(objs)
	rng := &splitMix64{seed}
	indices := make([]uint32, trips)
	for i := range indices {
		indices[i] = uint32(rng.below(len(objs)))
	}
	handled := 0
	pop := e.consumer(func(deltas int) { handled += deltas })
	warm := min(trips, 100_000)
	for _, i := range indices[:warm] {
		e.update(b.updateOf(objs[i]))
		pop()
	}
	runtime.GC()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	for _, i := range indices {
		e.update(b.updateOf(objs[i]))
		pop()
	}
	elapsed := time.Since(begin)
	runtime.ReadMemStats(&after)

	b.check("deltas handled", handled, warm+trips)
	b.report("round_trip_ns", float64(elapsed)/float64(trips), "ns")
	allocations := float64(after.Mallocs-before.Mallocs) / float64(trips)
	if !b.shared {
		allocations-- // the object itself
	}
	b.report("allocations", allocations, "1")
}

// W4: the handler spins for 20 us, one update is due every 10 us. A producer
// that was held up catches up; only the call itself is timed.
func (b *bench) busyHandler() {
	const pace = 10 * time.Microsecond
	updates := b.scaled(300_000)
	objs := objects(10_000)
	e := makeEngine(b.engine)
	e.known(objs)
	rng := &splitMix64{seed}
	indices := make([]uint32, updates)
	for i := range indices {
		indices[i] = uint32(rng.below(len(objs)))
	}
	handled := 0
	var consuming sync.WaitGroup
	consuming.Go(func() {
		next := e.consumer(func(deltas int) {
			handled += deltas
			for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
			}
		})
		for next() {
		}
	})
	calls := make(percentiles, updates)
	runtime.GC()

	start := time.Now()
	for i, k := range indices {
		for due := time.Duration(i) * pace; time.Since(start) < due; {
		}
		o := b.updateOf(objs[k])
		begin := time.Now()
		e.update(o)
		calls[i] = time.Since(begin)
	}
	took := time.Since(start)
	e.close()
	consuming.Wait()

	b.check("deltas handled", handled, updates)
	calls.sort()
	b.report("update_p50_us", micros(calls.at(0.5)), "us")
	b.report("update_p99_us", micros(calls.at(0.99)), "us")
	b.report("update_p99_9_us", micros(calls.at(0.999)), "us")
	b.report("update_max_us", micros(calls.at(1)), "us")
	// 1 if the producer could keep its pace.
	b.report("pace_kept", float64(time.Duration(updates)*pace)/float64(took), "1")
}

// nanosleep is the system call: time.Sleep(200 us) lasts over 1 ms on an idle
// machine, because it ends when the scheduler next looks at its timers.
func nanosleep(d time.Duration) {
	rest := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&rest, &rest) == syscall.EINTR {
	}
}

// W5: 8 consumers, the handler sleeps for 200 us.
func (b *bench) slowHandlers() {
	objs := objects(b.scaled(20_000))
	e := makeEngine(b.engine)
	for _, o := range objs {
		e.add(o)
	}
	e.close()
	consumers := min(8, e.maxConsumers())
	if consumers < 8 {
		b.note("1 consumer: it allows no more when it unlocks")
	}
	var handled atomic.Int64
	var consuming sync.WaitGroup
	runtime.GC()

	begin := time.Now()
	for range consumers {
		consuming.Go(func() {
			next := e.consumer(func(deltas int) {
				handled.Add(int64(deltas))
				nanosleep(200 * time.Microsecond)
			})
			for next() {
			}
		})
	}
	consuming.Wait()
	elapsed := time.Since(begin)

	b.check("deltas handled", int(handled.Load()), len(objs))
	b.report("pops_per_s", float64(len(objs))/elapsed.Seconds(), "1/s")
}

// W6, W7: a Replace or Resync of 1,000,000 known keys while one goroutine pops
// and another updates a key every 100 us; with queued, every key waits in the
// queue when the call comes. Updates and pops are watched from the call until
// all that it queued has been popped.
func (b *bench) stall(metric string, queued, replace bool) {
	keys := b.scaled(1_000_000)
	gone := keys / 1_000
	objs := objects(keys + gone)
	last := &object{key: "last"}
	e := makeEngine(b.engine)
	e.known(objs[:keys])
	// The list drops the first keys and brings as many new ones.
	list := make([]any, keys)
	for i, o := range objs[gone:] {
		list[i] = o
	}
	if queued {
		for _, o := range objs[:keys] {
			e.update(b.updateOf(o))
		}
	}
	runtime.GC()

	var called atomic.Bool // the call has begun; gaps and updates count from here
	var handled atomic.Int64
	var gap, longest time.Duration
	var consuming sync.WaitGroup
	consuming.Go(func() {
		previous := time.Now()
		next := e.consumer(func(int) {
			handled.Add(1)
			now := time.Now()
			// The gap that the call falls into counts from the last pop before it.
			if called.Load() {
				gap = max(gap, now.Sub(previous))
			}
			previous = now
		})
		for next() {
		}
	})
	stop := make(chan struct{})
	var updating sync.WaitGroup
	updating.Go(func() {
		rng := &splitMix64{seed}
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Only keys of the list, so that the store ends as the list.
			o := b.updateOf(objs[gone+rng.below(keys-gone)])
			begin := time.Now()
			e.update(o)
			if call := time.Since(begin); called.Load() {
				longest = max(longest, call)
			}
			nanosleep(100 * time.Microsecond)
		}
	})
	// The stalls that the machine and the Go scheduler cause: a goroutine that
	// only sleeps.
	var asleep time.Duration
	updating.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			begin := time.Now()
			nanosleep(time.Millisecond)
			if called.Load() {
				asleep = max(asleep, time.Since(begin)-time.Millisecond)
			}
		}
	})
	// Everything is in motion when the call comes, and in the queued case the
	// queue is still all but full.
	for handled.Load() < 100 {
		nanosleep(100 * time.Microsecond)
	}

	begin := time.Now()
	called.Store(true)
	if replace {
		e.replace(list)
	} else {
		e.resync()
	}
	call := time.Since(begin)
	// The others go on until everything that the call queued has been popped:
	// the last object in the queue tells.
	e.update(last)
	for !e.knows(last.key) {
		nanosleep(100 * time.Microsecond)
	}
	close(stop)
	updating.Wait()
	e.close()
	consuming.Wait()

	b.check("objects in the store", e.stored(), keys+1)
	b.report(metric, millis(call), "ms")
	b.report("update_max_ms", millis(longest), "ms")
	b.report("pop_gap_max_ms", millis(gap), "ms")
	b.report("sleeper_max_ms", millis(asleep), "ms")
}

// W8: resident memory per key beyond the objects: in the store, with every
// key queued as well, and after draining.
func (b *bench) memory() {
	objs := objects(b.scaled(1_000_000))
	per := func(bytes float64) float64 { return bytes / float64(len(objs)) }
	bare := rss()
	e := makeEngine(b.engine)
	e.known(objs)
	store := rss()
	for _, o := range objs {
		e.update(o)
	}
	queued := rss()
	handled := 0
	pop := e.consumer(func(deltas int) { handled += deltas })
	for handled < len(objs) {
		pop()
	}
	drained := rss()
	b.check("objects in the store", e.stored(), len(objs))
	runtime.KeepAlive(objs)
	b.report("store_bytes_per_key", per(store-bare), "B")
	b.report("queued_bytes_per_key", per(queued-bare), "B")
	b.report("drained_bytes_per_key", per(drained-bare), "B")
}

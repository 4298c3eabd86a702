package main

import (
	"math"
	"testing"
)

// wanted are the metrics that a workload must report, beside those it may.
var wanted = map[string][]string{
	"W1":  {"add_ns", "pop_ns"},
	"W2":  {"updates_per_s", "pops"},
	"W2u": {"updates_per_s", "pops"},
	"W3":  {"updates_per_s", "pops"},
	"W3b": {"round_trip_ns", "allocations"},
	"W4":  {"update_p50_us", "update_p99_us", "update_p99_9_us", "update_max_us", "pace_kept"},
	"W5":  {"pops_per_s"},
	"W6":  {"replace_ms", "update_max_ms", "pop_gap_max_ms", "sleeper_max_ms"},
	"W6q": {"replace_ms", "update_max_ms", "pop_gap_max_ms", "sleeper_max_ms"},
	"W7":  {"resync_ms", "update_max_ms", "pop_gap_max_ms", "sleeper_max_ms"},
	"W7q": {"resync_ms", "update_max_ms", "pop_gap_max_ms", "sleeper_max_ms"},
	"W8":  {"store_bytes_per_key", "queued_bytes_per_key", "drained_bytes_per_key"},
}

// Every workload checks its own counts and the store it leaves behind, and
// panics when they are off; so running each of them once is the test.
func TestEveryWorkloadOnEveryEngine(t *testing.T) {
	for _, shared := range []bool{true, false} {
		for _, w := range workloads {
			for _, e := range engines {
				var metrics []string
				b := &bench{workload: w.name, engine: e.name, scale: 0.001, shared: shared, emit: func(r result) {
					if math.IsNaN(r.Value) || math.IsInf(r.Value, 0) {
						t.Errorf("%s on %s: %s is %v", w.name, e.name, r.Metric, r.Value)
					}
					metrics = append(metrics, r.Metric)
				}}
				w.run(b)
				if len(metrics) != len(wanted[w.name]) {
					t.Errorf("%s on %s reports %v, want %v", w.name, e.name, metrics, wanted[w.name])
					continue
				}
				for i, m := range wanted[w.name] {
					if metrics[i] != m {
						t.Errorf("%s on %s reports %s, want %s", w.name, e.name, metrics[i], m)
					}
				}
			}
		}
	}
}

// The values are those published for SplitMix64; the kube-rs program has the
// same test.
func TestGeneratorIsTheSameEverywhere(t *testing.T) {
	rng := &splitMix64{1234567}
	for _, want := range []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423} {
		if got := rng.next(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestZipfWeights(t *testing.T) {
	const draws = 200_000
	rng, ranks := &splitMix64{seed}, newZipf(10_000)
	counts := make([]int, 10_000)
	for range draws {
		counts[ranks.draw(rng)]++
	}
	sum := ranks.cumulated[9_999]
	for _, rank := range []int{0, 1, 9} {
		want := draws * math.Pow(float64(rank+1), -0.99) / sum
		if got := float64(counts[rank]); math.Abs(got-want) > 0.05*want {
			t.Errorf("rank %d was drawn %v times, want about %.0f", rank, got, want)
		}
	}
}

package main

import (
	"fmt"
	"math"
	"sort"

	"k8s.io/client-go/tools/cache"
)

// object is what every workload queues: the key is made once and kept here, as
// in the Rust programs, so that no run pays for formatting keys.
type object struct {
	key     string
	rv      uint64
	payload [64]byte
}

// key is the key function of queues and stores. It knows tombstones, as the
// one that informers give to their store.
func key(obj any) (string, error) {
	switch o := obj.(type) {
	case *object:
		return o.key, nil
	case cache.DeletedFinalStateUnknown:
		return o.Key, nil
	default:
		return "", fmt.Errorf("neither an object of this program nor a tombstone: %T", obj)
	}
}

func objects(n int) []*object {
	objs := make([]*object, n)
	for i := range objs {
		objs[i] = &object{key: fmt.Sprintf("ns-%02d/pod-%07d", i%50, i), rv: uint64(i)}
	}
	return objs
}

// fresh is the object a watch would hand over for an update: a new allocation,
// its key shared with the old one.
func (o *object) fresh() *object {
	n := *o
	n.rv++
	return &n
}

// splitMix64 is the generator of all programs here: small enough to be written
// again in each language, so that all of them draw the same keys.
type splitMix64 struct{ state uint64 }

const seed = 7

func (r *splitMix64) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// float is uniform over [0, 1).
func (r *splitMix64) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// below is uniform over [0, n), but for a bias of n in 2^53.
func (r *splitMix64) below(n int) int { return int(r.float() * float64(n)) }

// zipf draws ranks 0..n-1, rank r with a weight of 1/(r+1)^0.99.
type zipf struct{ cumulated []float64 }

func newZipf(n int) zipf {
	c := make([]float64, n)
	sum := 0.0
	for i := range c {
		sum += math.Pow(float64(i+1), -0.99)
		c[i] = sum
	}
	return zipf{c}
}

func (z zipf) draw(r *splitMix64) int {
	x := r.float() * z.cumulated[len(z.cumulated)-1]
	return min(sort.SearchFloat64s(z.cumulated, x), len(z.cumulated)-1)
}

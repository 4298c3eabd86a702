package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is one line of output; the format is described in ../README.md.
type result struct {
	Workload string  `json:"workload"`
	Engine   string  `json:"engine"`
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
	Scale    float64 `json:"scale"`
	Note     string  `json:"note,omitempty"`
}

// meta tells what ran where; the table prints it below the figures.
type meta struct {
	Program    string `json:"program"`
	Version    string `json:"version"`
	Toolchain  string `json:"toolchain"`
	Procs      int    `json:"procs"`
	CPUs       int    `json:"cpus"`
	ObjectsAre string `json:"objects"`
}

func writeMeta(shared bool) {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/client-go" {
				version = dep.Version
			}
		}
	}
	m := meta{"k8s.io/client-go", version, runtime.Version(), runtime.GOMAXPROCS(0), runtime.NumCPU(), "fresh"}
	if shared {
		m.ObjectsAre = "shared"
	}
	line(map[string]meta{"meta": m})
}

func line(v any) {
	must(json.NewEncoder(os.Stdout).Encode(v))
}

// percentiles of call times, all of them kept: no histogram error.
type percentiles []time.Duration

func (p percentiles) at(q float64) time.Duration {
	if len(p) == 0 {
		return 0
	}
	return p[min(int(q*float64(len(p))), len(p)-1)]
}

func (p percentiles) sort() { slices.Sort(p) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rss is the resident memory after a collection, with all free memory given
// back, in bytes.
func rss() float64 {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	must(err)
	for l := range strings.Lines(string(status)) {
		if fields := strings.Fields(l); len(fields) == 3 && fields[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(fields[1], 64)
			must(err)
			return kb * 1024
		}
	}
	panic(fmt.Sprintf("no VmRSS in /proc/self/status:\n%s", status))
}

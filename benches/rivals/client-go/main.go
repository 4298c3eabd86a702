// Command client-go runs the workloads of this directory's README on
// client-go's DeltaFIFO and RealFIFO and prints one JSON object per figure.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "client-go rival:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("client-go", flag.ContinueOnError)
	only := flags.String("workload", "all", "comma-separated workloads, for example W2,W3b")
	engine := flags.String("engine", "all", "comma-separated engines, for example client-go/DeltaFIFO")
	scale := flags.Float64("scale", 1, "factor on the number of operations and on the large key sets")
	procs := flags.Int("procs", 2, "GOMAXPROCS")
	objs := flags.String("objects", "shared", "what an update hands over: shared (the known object again) or fresh (a new one)")
	inProcess := flags.Bool("in-process", false, "run here; without it each workload and engine gets a process of its own")
	flags.Bool("json", true, "accepted for the sake of the common command line; the output is always JSON lines")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see -help", flags.Arg(0))
	}
	if *scale <= 0 || *scale > 1 {
		return fmt.Errorf("--scale is %v; give a factor above 0 and up to 1", *scale)
	}
	if *objs != "shared" && *objs != "fresh" {
		return fmt.Errorf("--objects is %q; give shared or fresh", *objs)
	}
	names, err := pick("workload", *only, func(yield func(string)) {
		for _, w := range workloads {
			yield(w.name)
		}
	})
	if err != nil {
		return err
	}
	chosen, err := pick("engine", *engine, func(yield func(string)) {
		for _, e := range engines {
			yield(e.name)
		}
	})
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(*procs)
	// A handler that holds the lock for over 100 ms makes client-go log a trace.
	klog.SetLogger(logr.Discard())

	if !*inProcess {
		writeMeta(*objs == "shared")
	}
	for _, w := range workloads {
		for _, e := range engines {
			if !slices.Contains(names, w.name) || !slices.Contains(chosen, e.name) {
				continue
			}
			if *inProcess {
				w.run(&bench{
					workload: w.name, engine: e.name, scale: *scale, shared: *objs == "shared",
					emit: func(r result) { line(r) },
				})
				continue
			}
			if err := child(w.name, e.name, *scale, *procs, *objs); err != nil {
				return fmt.Errorf("%s on %s: %w", w.name, e.name, err)
			}
		}
	}
	return nil
}

// child runs one workload in a fresh process, so that no heap of an earlier
// one is left for the collector to walk.
func child(workload, engine string, scale float64, procs int, objects string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "--in-process", "--workload", workload, "--engine", engine,
		"--scale", fmt.Sprint(scale), "--procs", fmt.Sprint(procs), "--objects", objects)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// pick checks a comma-separated choice against what there is.
func pick(what, choice string, all func(func(string))) ([]string, error) {
	var known []string
	all(func(name string) { known = append(known, name) })
	if choice == "all" {
		return known, nil
	}
	chosen := strings.Split(choice, ",")
	for _, c := range chosen {
		if !slices.Contains(known, c) {
			return nil, fmt.Errorf("no %s %q; there are %s", what, c, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

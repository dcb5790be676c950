package cnichain_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/dra-networking/dra-network-driver/cnichain"
	"github.com/dra-networking/dra-network-driver/cnichain/cnitest"
	"github.com/dra-networking/dra-network-driver/cnichain/journal"
)

// BenchmarkChain is what a chain of two steps costs beside its plugins' own time: ADD and DEL, once with a journal in
// memory and once on disk.
func BenchmarkChain(b *testing.B) {
	for _, name := range []string{"memory", "disk"} {
		b.Run(name, func(b *testing.B) {
			node := cnitest.NewNode("up0", "up1")
			var store cnichain.Journal = &cnitest.Journal{}
			if name == "disk" {
				opened, err := journal.Open(filepath.Join(b.TempDir(), "journal.db"), time.Now())
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = opened.Close() }()
				if store, err = journal.NewChains(opened.DB); err != nil {
					b.Fatal(err)
				}
			}
			executor := cnichain.NewExecutor(cnichain.Options{Exec: node, Host: node, Journal: store, Dirs: []string{cnitest.PluginDir}})
			plan := benchPlan(b)
			b.ReportAllocs()
			for b.Loop() {
				made := attachment(plan)
				if err := executor.Add(context.Background(), made, "ns", "n"); err != nil {
					b.Fatal(err)
				}
				if err := executor.Del(context.Background(), made); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchPlan(b *testing.B) cnichain.Plan {
	b.Helper()
	topology, binding := linkThenTuneBinding()
	plan, problems := cnichain.Compile(topology, binding)
	if len(problems) > 0 {
		b.Fatal(problems)
	}
	return *plan
}

// BenchmarkCompile is what NodePrepareResources pays for the plan.
func BenchmarkCompile(b *testing.B) {
	topology, binding := linkThenTuneBinding()
	b.ReportAllocs()
	for b.Loop() {
		if _, problems := cnichain.Compile(topology, binding); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}

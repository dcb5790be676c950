// Command duel measures this driver and others, and generates tables and charts from the measurements.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/duel"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "duel:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "duel",
		Short: "Measure this driver beside others, on a real local Kubernetes",
		Long: `duel starts a cluster for each contestant, attaches network interfaces to pods with it, and stores each sample.
It needs root and a quiet machine.`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	cmd.AddCommand(run(), render())
	return cmd
}

func run() *cobra.Command {
	options := duel.Options{Progress: os.Stdout}
	var out string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Measure, and write the samples to a file",
		Example: `  duel run --peers ~/peers            compare with the contestants whose binaries are in the directory
  duel run --samples 50 --rounds 3    measure figures for publication
  duel run --peers ~/peers --stages side-by-side --only "netdev and macvlan by this driver" --only dranet
                                      compare two contestants on a machine that is not quiet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Samples < 1 || options.Rounds < 1 {
				return fmt.Errorf("cannot measure %d samples in %d rounds; give at least 1 of each", options.Samples,
					options.Rounds)
			}
			for _, stage := range options.Stages {
				if !slices.Contains(duel.AllStages(), stage) {
					return fmt.Errorf("cannot measure stage %q: there is none; choose from %s", stage,
						strings.Join(duel.AllStages(), ", "))
				}
			}
			var err error
			if options.Clone, err = os.Getwd(); err != nil {
				return err
			}
			if options.Peers != "" {
				if options.Peers, err = filepath.Abs(options.Peers); err != nil {
					return err
				}
			}
			options.Keep = func(results *duel.Results) error { return results.Write(out) }
			results, err := duel.Run(cmd.Context(), options)
			if err != nil {
				return err
			}
			return results.Write(out)
		},
	}
	cmd.Flags().StringVar(&options.Bin, "bin", "bin", "directory with this driver's binaries")
	cmd.Flags().StringVar(&options.Peers, "peers", "", "directory with the binaries of other drivers: dranet, multus, "+
		"and the directory before with another version of this driver")
	cmd.Flags().StringVar(&options.Cluster, "cluster", "duel", "name of the local cluster; side by side, each "+
		"contestant's cluster has a number after it")
	cmd.Flags().IntVar(&options.Samples, "samples", 20, "number of pods in each series and round")
	cmd.Flags().IntVar(&options.Rounds, "rounds", 1, "number of rounds")
	cmd.Flags().StringArrayVar(&options.Only, "only", nil, "measure only this contestant; can be repeated")
	cmd.Flags().StringSliceVar(&options.Stages, "stages", duel.AllStages(), "alone: one contestant runs at a time; "+
		"side-by-side: all clusters run at the same time, and pods are created on each in turn")
	cmd.Flags().StringVar(&out, "out", "bin/duel.json", "file to write the samples to")
	return cmd
}

func render() *cobra.Command {
	var source, page string
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Make tables and charts of samples",
		Example: `  duel render --from bin/duel.json --page /tmp/page.md    of the last run
  duel render --from docs/performance.json                of the run that is published`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			results, err := duel.Read(source)
			if err != nil {
				return err
			}
			return duel.Render(results, page)
		},
	}
	cmd.Flags().StringVar(&source, "from", "bin/duel.json", "file with the samples")
	cmd.Flags().StringVar(&page, "page", "docs/performance.md",
		"page whose tables are replaced; charts are written beside it")
	return cmd
}

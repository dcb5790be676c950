package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/stack"
)

func deployCommand(w *where) *cobra.Command {
	var bin string
	cmd := &cobra.Command{
		Use:   "deploy",
		Short: "Put the driver and the controller into the cluster, as they are shipped",
		Long: `deploy packs the binaries into images, imports them, applies the manifests of the folder deploy/ and waits until
both are ready. Run it again to try changed binaries or manifests. It needs the clone as working directory.`,
		Example: "  make build && lab deploy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := w.open()
			if err != nil {
				return err
			}
			clone, err := os.Getwd()
			if err != nil {
				return err
			}
			start := time.Now()
			if err := stack.Install(cmd.Context(), c,
				stack.Options{Clone: clone, Bin: bin, Progress: cmd.OutOrStdout()}); err != nil {
				return err
			}
			return printf(cmd, "Deployed in %s.  Try: bin/lab --name %s kubectl get resourceslices", since(start), w.name)
		},
	}
	cmd.Flags().StringVar(&bin, "bin", "bin", "folder with the binaries")
	return cmd
}

func packCommand() *cobra.Command {
	var bin, out string
	cmd := &cobra.Command{
		Use:     "pack",
		Short:   "Pack the driver and the controller into OCI image archives",
		Example: "  make build && lab pack --out bin/images",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tars, err := stack.Pack(bin, out, stack.DefaultTag)
			if err != nil {
				return err
			}
			for _, tar := range tars {
				if err := printf(cmd, "%s", tar); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&bin, "bin", "bin", "folder with the binaries")
	cmd.Flags().StringVar(&out, "out", "bin/images", "folder for the archives")
	return cmd
}

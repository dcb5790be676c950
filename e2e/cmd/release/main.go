// Command release creates a release of the project. It can also verify a release without network access.
package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dra-networking/dra-network-driver/e2e/release"
)

// keyVariable is the environment variable with the private key, for systems that pass secrets in the environment.
const keyVariable = "RELEASE_SIGNING_KEY"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "release:", err) // an error while printing cannot be reported
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{Use: "release", Short: "Make and verify releases", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(makeCommand(), verifyCommand())
	return root
}

func makeCommand() *cobra.Command {
	o := release.Options{}
	var key string
	cmd := &cobra.Command{
		Use:   "make VERSION",
		Short: "Make the files of a release",
		Long: `Use make to release the commit that is checked out. It clones that commit into a folder of its own, tags it there,
and makes archives, images, the chart, manifests, SBOMs and checksums. With a key (a file, or ` + keyVariable + ` in the
environment) it signs the checksums and says where everything comes from.`,
		Example: `  release make v0.1.0 --registry registry.example/team --key release.key`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Key, err = signingKey(key); err != nil {
				return err
			}
			o.Version, o.Progress = args[0], cmd.ErrOrStderr()
			if o.Out == "" {
				o.Out = filepath.Join("bin", "release", o.Version)
			}
			if err := release.Make(cmd.Context(), o); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), o.Out)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Clone, "clone", ".", "the project's folder")
	cmd.Flags().StringVar(&o.Out, "out", "", "the folder to make (default bin/release/VERSION)")
	cmd.Flags().StringVar(&o.Registry, "registry", "localhost", "where the images will be pushed to")
	cmd.Flags().StringVar(&o.Builder, "builder", release.ByHand, "URI of who builds, for the provenance")
	cmd.Flags().StringVar(&key, "key", "", "file with the private key, ECDSA P-256 in PEM without a password")
	return cmd
}

// signingKey reads the key from a file or from the environment. It returns nil if neither is set. It removes the key
// from the environment, because child processes inherit the environment: go runs compilers, and git may run hooks.
func signingKey(file string) (*ecdsa.PrivateKey, error) {
	data := os.Getenv(keyVariable)
	if err := os.Unsetenv(keyVariable); err != nil { // git and go do not need it
		return nil, fmt.Errorf("cannot keep the key from other programs: %w", err)
	}
	if file != "" { // an empty file is an error, not a missing key
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("cannot read the key: %w", err)
		}
		return release.ParseKey(data)
	}
	if data == "" {
		return nil, nil
	}
	return release.ParseKey([]byte(data))
}

func verifyCommand() *cobra.Command {
	var key, topology, version string
	var unsigned, run bool
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Verify the files of a release",
		Long: `Use verify before you install or publish a release. It checks the signature and the provenance with the public key,
the checksums, the digests in images, the versions of programs, and that SBOMs, chart and manifests match the
programs and images. It needs no network.`,
		Example: `  release verify bin/release/v0.1.0 --key release.pub --version v0.1.0 --run`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			public, err := publicKey(key, unsigned)
			if err != nil {
				return err
			}
			report, err := release.Verify(args[0], version, public)
			if err != nil {
				return err
			}
			signed := "NOT SIGNED"
			if report.Signed {
				signed = "signed, built by " + report.Builder
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s of commit %s, images of %s: %d files are right; %s\n",
				report.Version, report.Commit, report.Registry, report.Files, signed); err != nil || !run {
				return err
			}
			return release.SelfTest(cmd.Context(), args[0], topology, report, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "file with the public key, in PEM")
	cmd.Flags().StringVar(&version, "version", "", "the version that it must be; any if empty")
	cmd.Flags().BoolVar(&unsigned, "unsigned", false, "verify a release that has no signature")
	cmd.Flags().BoolVar(&run, "run", false, "also run the programs; QEMU runs programs of other architectures")
	cmd.Flags().StringVar(&topology, "topology", "", "file with a NetworkTopology that netdra validates, with --run")
	return cmd
}

func publicKey(file string, unsigned bool) (*ecdsa.PublicKey, error) {
	if (file == "") != unsigned {
		return nil, errors.New("cannot verify: name the public key (--key), or verify without a signature (--unsigned)")
	}
	if unsigned {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the public key: %w", err)
	}
	return release.ParsePublicKey(data)
}

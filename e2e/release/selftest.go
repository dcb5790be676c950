package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// emulator returns the name of the QEMU program that runs programs for another architecture, which is a GOARCH value.
func emulator(architecture string) string {
	return map[string]string{"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}[architecture]
}

// SelfTest unpacks the programs in a verified release and runs them. Programs for other architectures run in QEMU's
// user mode if it is installed. Each program must report the version and the commit, and netdra must validate the
// topology in the file at topology, unless this path is empty. progress receives a line for each program that was run
// or skipped. SelfTest runs the programs as the current user, so verify the release first. If this machine cannot run
// programs for an architecture, SelfTest reports this but does not fail.
func SelfTest(ctx context.Context, dir, topology string, report Report, progress io.Writer) error {
	for _, architecture := range Architectures() {
		command, err := runner(architecture)
		if err != nil {
			_, _ = fmt.Fprintf(progress, "linux/%s: not run: %v\n", architecture, err)
			continue
		}
		count, err := testArchitecture(ctx, dir, topology, architecture, command, report)
		if err != nil {
			return fmt.Errorf("cannot run the programs for %s: %w", architecture, err)
		}
		_, _ = fmt.Fprintf(progress, "linux/%s: %d programs run\n", architecture, count)
	}
	return nil
}

// runner returns the command with which to run programs for an architecture. It is empty for this machine's
// architecture.
func runner(architecture string) ([]string, error) {
	if architecture == runtime.GOARCH {
		return nil, nil
	}
	name := emulator(architecture)
	for _, candidate := range []string{name, name + "-static"} {
		if found, err := exec.LookPath(candidate); err == nil {
			return []string{found}, nil
		}
	}
	return nil, fmt.Errorf("there is no %s: install QEMU's user mode (Debian: apt-get install qemu-user-static)", name)
}

// testArchitecture runs the programs in an archive, under an emulator if command specifies one, and returns the number
// of programs. It tests the file that users download, not the files that were packed into it.
func testArchitecture(ctx context.Context, dir, topology, architecture string, command []string,
	report Report) (int, error) {
	programs, err := os.MkdirTemp("", "release-test-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(programs) }()
	var names []string
	archive := archiveName(chartName, report.Version, architecture) + archiveSuffix
	err = readArchive(filepath.Join(dir, archive), func(name string, content []byte) error {
		if base := filepath.Base(name); base != licence {
			names = append(names, base)
			return os.WriteFile(filepath.Join(programs, base), content, 0o755)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	run := func(name string, args ...string) (string, error) {
		line := append(append([]string{}, command...), append([]string{filepath.Join(programs, name)}, args...)...)
		return output(exec.CommandContext(ctx, line[0], line[1:]...))
	}
	var problems []error
	for _, name := range names {
		said, err := run(name, "--version")
		if err == nil && (!strings.Contains(said, report.Version+" ") || !strings.Contains(said, report.Commit[:12])) {
			err = fmt.Errorf("%s says %q, not version %s and commit %s", name, said, report.Version, report.Commit)
		}
		problems = append(problems, err)
	}
	if topology != "" {
		_, err = run("netdra", "chain", "validate", topology)
	}
	return len(names), errors.Join(append(problems, err)...)
}

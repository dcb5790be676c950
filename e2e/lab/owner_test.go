package lab_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dra-networking/dra-network-driver/e2e/lab"
)

// ownerVariable is set when TestOwner runs as the process that owns a cluster.
const ownerVariable = "LAB_TEST_OWNER"

// TestOwner is not a test: TestClusterEndsWithItsOwner runs it as a program and kills it.
func TestOwner(t *testing.T) {
	if os.Getenv(ownerVariable) == "" {
		t.Skip("only runs as part of TestClusterEndsWithItsOwner")
	}
	c, err := lab.Up(t.Context(), lab.Options{Name: "labtest-owner"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stdout.WriteString("pid " + initPID(t, c) + "\n"); err != nil {
		t.Fatal(err)
	}
	select {}
}

func TestClusterEndsWithItsOwner(t *testing.T) {
	skipUnlessPossible(t)
	mounts, links := hostMounts(t), hostState(t)
	owner := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOwner$", "-test.v=false")
	owner.Env = append(os.Environ(), ownerVariable+"=1")
	owner.Stderr = t.Output()
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || len(line) < 6 {
		t.Fatalf("the owner printed %q (%v)", line, err)
	}
	pid := line[4 : len(line)-1]
	c, err := lab.Open(lab.Options{Name: "labtest-owner"})
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // the test killed it
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			_, err := os.Stat(filepath.Join("/proc", pid))
			return errors.Is(err, fs.ErrNotExist), nil
		})
	if err != nil {
		t.Errorf("the cluster outlived its owner: %v", err)
	}
	if found, err := lab.Remove(t.Context(), lab.Options{Name: "labtest-owner"}); err != nil || !found {
		t.Errorf("Remove did not remove what the killed owner left (%v, %v)", found, err)
	}
	checkNothingLeft(t, c, pid, mounts, links)
}

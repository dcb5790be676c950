// Command slow-macvlan is a CNI plugin for tests: macvlan that takes its time. "seconds" in its configuration is how long
// ADD waits before macvlan is called.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	err := run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode()) // macvlan has said why
	case err != nil:
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "1.0.0", "code": 100, "msg": err.Error()})
		os.Exit(1)
	}
}

func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	config := struct {
		Seconds float64 `json:"seconds"`
	}{}
	if os.Getenv("CNI_COMMAND") == "ADD" {
		if err := json.Unmarshal(stdin, &config); err != nil {
			return fmt.Errorf("cannot read the configuration: %w", err)
		}
	}
	time.Sleep(time.Duration(config.Seconds * float64(time.Second)))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	macvlan := exec.Command(filepath.Join(filepath.Dir(self), "macvlan"))
	macvlan.Stdin, macvlan.Stdout, macvlan.Stderr = bytes.NewReader(stdin), os.Stdout, os.Stderr
	return macvlan.Run()
}

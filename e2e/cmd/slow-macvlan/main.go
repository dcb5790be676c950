// Command slow-macvlan is a CNI plugin for tests: macvlan with a delay. In its configuration, "seconds" is how long ADD
// waits before it calls macvlan. "control" is the prefix of the files with which a test controls the plugin: ADD or DEL
// waits while CONTROL.ADD or CONTROL.DEL exists, and ADD then fails if CONTROL.FAIL exists.
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
		os.Exit(exit.ExitCode()) // macvlan has reported the error
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
	command := os.Getenv("CNI_COMMAND")
	if command == "ADD" || command == "DEL" {
		if err := delay(stdin, command); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	macvlan := exec.Command(filepath.Join(filepath.Dir(self), "macvlan"))
	macvlan.Stdin, macvlan.Stdout, macvlan.Stderr = bytes.NewReader(stdin), os.Stdout, os.Stderr
	return macvlan.Run()
}

// delay waits for as long as the configuration specifies. At this point, macvlan has not created anything yet, so
// nothing is left behind if the plugin is killed.
func delay(stdin []byte, command string) error {
	var config struct {
		Seconds float64 `json:"seconds"`
		Control string  `json:"control"`
	}
	if err := json.Unmarshal(stdin, &config); err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	if command == "ADD" {
		time.Sleep(time.Duration(config.Seconds * float64(time.Second)))
	}
	if config.Control == "" {
		return nil
	}
	for exists(config.Control + "." + command) {
		time.Sleep(5 * time.Millisecond)
	}
	if command == "ADD" && exists(config.Control+".FAIL") {
		return errors.New("the test wants a failure")
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

package main

import (
	"io"
	"testing"

	"github.com/dra-networking/dra-network-driver/docs/reference"
)

func TestReference(t *testing.T) {
	reference.Command(t, rootCommand(machine{}, console{out: io.Discard, err: io.Discard, name: "netdra"}))
}

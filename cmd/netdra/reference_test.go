package main

import (
	"io"
	"testing"

	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/osdeps"
	"github.com/dra-networking/dra-network-driver/cmd/netdra/internal/printer"
	"github.com/dra-networking/dra-network-driver/docs/reference"
)

func TestReference(t *testing.T) {
	reference.Command(t, rootCommand(osdeps.Deps{}, printer.Streams{Out: io.Discard, Err: io.Discard, Name: "netdra"}))
}

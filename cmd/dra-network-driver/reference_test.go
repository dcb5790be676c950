package main

import (
	"testing"

	"github.com/dra-networking/dra-network-driver/docs/reference"
)

func TestReference(t *testing.T) { reference.Command(t, command()) }

package vm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Offsets in the setup header of the x86 boot protocol (Documentation/arch/x86/boot.rst in the kernel source).
const (
	offsetSetupSectors  = 0x1f1
	offsetMagic         = 0x202 // "HdrS"
	offsetPayload       = 0x248 // relative to the end of the setup code
	offsetPayloadLength = 0x24c
	endOfHeader         = 0x250
	sector              = 512
)

// unpackKernel extracts the kernel from a bzImage, because it takes an emulated processor seconds to decompress it.
// QEMU starts the unpacked kernel, which is an ELF file, at the PVH entry point, which Debian's kernels have. All
// offsets in the image are checked against its length.
func unpackKernel(image []byte) ([]byte, error) {
	if len(image) < endOfHeader || string(image[offsetMagic:offsetMagic+4]) != "HdrS" {
		return nil, errors.New("not an x86 kernel image")
	}
	number := func(offset int) uint64 { return uint64(binary.LittleEndian.Uint32(image[offset:])) }
	begin := (uint64(image[offsetSetupSectors])+1)*sector + number(offsetPayload)
	end := begin + number(offsetPayloadLength)
	if end > uint64(len(image)) || end < begin+4 {
		return nil, fmt.Errorf("its kernel should be at %d to %d of %d bytes", begin, end, len(image))
	}
	payload := image[begin : end-4] // the last four bytes are the length, which is not part of the zstd data
	decoder, err := zstd.NewReader(bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	kernel, err := io.ReadAll(decoder)
	if err != nil {
		return nil, fmt.Errorf("cannot decompress the kernel in it, which must be zstd: %w", err)
	}
	return kernel, nil
}

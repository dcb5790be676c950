package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"
)

// A node that lies about the size of its files cannot exhaust the memory: the archive does not contain the blocks of a
// sparse file.
func TestFilesAreBounded(t *testing.T) {
	const most = 8192
	plain, err := Write([]File{{Name: "a", Data: make([]byte, 1024)}}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if files, err := read(plain, "n1", most); err != nil || len(files) != 1 || len(files[0].Data) != 1024 {
		t.Errorf("%v", err)
	}
	for size, fits := range map[int]bool{most: true, most + 1: false} {
		files, err := read(sparse(t, size), "n1", most)
		if fits && (err != nil || len(files) != 1 || len(files[0].Data) != size) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if !fits && (err == nil || !strings.Contains(err.Error(), "too large")) {
			t.Errorf("%d bytes: %d files, %v", size, len(files), err)
		}
	}
}

// sparse returns an archive with a file that consists of a single hole (GNU sparse format 0.1 in PAX records), which
// package tar can read but not write.
func sparse(t *testing.T, size int) []byte {
	t.Helper()
	records := ""
	for _, record := range []string{"GNU.sparse.numblocks=1", "GNU.sparse.map=0,0", fmt.Sprintf("GNU.sparse.size=%d",
		size)} {
		records += fmt.Sprintf("%d %s\n", len(record)+4, record) // two digits, a space and the end of the line
	}
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	for _, part := range [][]byte{
		header(tar.TypeXHeader, len(records)), append([]byte(records), make([]byte, 512-len(records))...),
		header(tar.TypeReg, 0), make([]byte, 1024),
	} {
		if _, err := zipped.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// header returns the header of a file in the POSIX (ustar) format.
func header(kind byte, size int) []byte {
	block := make([]byte, 512)
	copy(block, "file")
	copy(block[100:], "0000600\x000000000\x000000000\x00")
	copy(block[124:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	copy(block[148:], "        ") // the checksum is computed with spaces in this field
	block[156] = kind
	copy(block[257:], "ustar\x0000")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00", sum))
	return block
}

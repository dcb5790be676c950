package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// notesSize is the size of the notes file, which is enough for several hundred attachments. The space is allocated when
// the file is opened, so that notes can be written even if the disk fills up later.
const notesSize = 1 << 20

var (
	errNotesFull = errors.New("the file of notes is full")
	// errNotesUnread means that the notes file exists but cannot be read. It may contain the latest changes made by a
	// killed driver, without which a device in a pod might be considered free.
	errNotesUnread = errors.New("its notes cannot be read, and may contain the last changes of a killed driver")
)

// noteFile stores changes that are not on disk yet. It is written but never synced: the data stays in the kernel's page
// cache, so it survives a crash of the process but not of the machine.
//
// Notes are stored back to back from the beginning of the file. Each note is stored as its length and a CRC-32C (4
// bytes each, big endian), followed by its JSON. The CRC covers the JSON of all notes up to and including this note.
// Once all notes have been committed to the journal, the next note overwrites the first one. Reading stops at a partial
// or partially overwritten note, and at a note that does not belong with the preceding ones: an older note after the
// newest one, or, if only some pages of the file survived a power loss, a newer note after older ones.
type noteFile struct {
	file *os.File
	end  int64
	sum  uint32 // of the last note
}

// openNotes opens or creates the notes file and returns the notes in it, even if no new notes can be stored. It returns
// errNotesUnread if the file exists but cannot be read.
func openNotes(path string) (*noteFile, []change, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if info, statErr := os.Lstat(path); statErr == nil && !info.IsDir() {
			err = unread(err)
		}
		return nil, nil, err
	}
	data := make([]byte, notesSize)
	if _, err = file.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) { // EOF if no space was allocated
		return nil, nil, errors.Join(unread(err), file.Close())
	}
	found, sum := []change{}, uint32(0)
	for {
		note, size, whole := parseNote(data, sum)
		if !whole {
			break
		}
		sum = binary.BigEndian.Uint32(data[4:])
		found, data = append(found, note), data[size:]
	}
	if err := unix.Fallocate(int(file.Fd()), 0, 0, notesSize); err != nil {
		return nil, found, errors.Join(err, file.Close())
	}
	return &noteFile{file: file}, found, nil
}

func unread(err error) error {
	return fmt.Errorf("%w: %w; repair that, or remove the file after a reboot of the node", errNotesUnread, err)
}

const noteHeader = 8

// parseNote parses the first note in data, and returns its size. before is the CRC of the previous note.
func parseNote(data []byte, before uint32) (note change, size int, whole bool) {
	if len(data) < noteHeader {
		return note, 0, false
	}
	length := binary.BigEndian.Uint32(data)
	if length == 0 || uint64(length) > uint64(len(data)-noteHeader) {
		return note, 0, false
	}
	size = noteHeader + int(length)
	body := data[noteHeader:size]
	whole = extendChecksum(before, body) == binary.BigEndian.Uint32(data[4:]) && json.Unmarshal(body, &note) == nil
	return note, size, whole
}

// append writes a note after the existing ones.
func (n *noteFile) append(note *change) error {
	body, err := note.encode()
	if err != nil {
		return err
	}
	data := make([]byte, noteHeader, noteHeader+len(body))
	binary.BigEndian.PutUint32(data, uint32(len(body))) //nolint:gosec // a body that is too long is refused below
	sum := extendChecksum(n.sum, body)
	binary.BigEndian.PutUint32(data[4:], sum)
	data = append(data, body...)
	if n.end+int64(len(data)) > notesSize {
		return errNotesFull
	}
	if _, err := n.file.WriteAt(data, n.end); err != nil {
		return err
	}
	n.end, n.sum = n.end+int64(len(data)), sum
	return nil
}

// rewind is called when every note is in the journal file, so that the next note is written at the beginning.
func (n *noteFile) rewind() { n.end, n.sum = 0, 0 }

func (n *noteFile) close() { _ = n.file.Close() }

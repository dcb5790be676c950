package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"go.etcd.io/bbolt"
)

func epoch() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Unix(0, 0)) }

type thing struct{ Name string }

func openAt(t *testing.T, path string) (Opened, *Bucket[thing]) {
	t.Helper()
	opened, err := Open(path, epoch())
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := NewBucket[thing](opened.DB, "things")
	if err != nil {
		t.Fatal(err)
	}
	return opened, bucket
}

func TestRecordsSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "journal.db")
	opened, bucket := openAt(t, path)
	for _, key := range []string{"a", "b"} {
		if err := bucket.Put(key, thing{Name: key}); err != nil {
			t.Fatal(err)
		}
	}
	if err := bucket.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if err := bucket.Delete("never"); err != nil {
		t.Errorf("cannot delete a record that does not exist: %v", err)
	}
	if _, err := Open(path, epoch()); err == nil || !strings.Contains(err.Error(), "another driver holds it") {
		t.Errorf("error for a second driver = %v, want one about the lock", err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openAt(t, path)
	defer func() { _ = opened.Close() }()
	records, damaged, err := bucket.All()
	if err != nil || len(damaged) > 0 || len(records) != 1 || records["b"].Name != "b" {
		t.Errorf("records = %v, damaged = %v, %v, want only record b", records, damaged, err)
	}
}

func TestUnreadableJournalIsSetAside(t *testing.T) {
	for name, content := range map[string][]byte{"garbage": []byte("not a database at all"), "empty": {},
		"truncated": nil} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "journal.db")
			if content == nil {
				opened, bucket := openAt(t, path)
				if err := bucket.Put("a", thing{}); err != nil {
					t.Fatal(err)
				}
				_ = opened.Close()
				if err := os.Truncate(path, 9000); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			opened, bucket := openAt(t, path)
			defer func() { _ = opened.Close() }()
			if opened.SetAside == "" || opened.Reason == nil {
				t.Error("Open did not set the unreadable journal aside or report a reason")
			}
			if _, err := os.Stat(opened.SetAside); err != nil {
				t.Error(err)
			}
			if err := bucket.Put("b", thing{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewerSchemaIsRefusedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	opened, _ := openAt(t, path)
	err := opened.bolt.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"),
			[]byte("99"))
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = opened.Close()
	if _, err := Open(path, epoch()); err == nil || !strings.Contains(err.Error(), "newer driver") {
		t.Errorf("unexpected error: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the newer journal no longer exists: %v", err)
	}
}

func TestDamagedRecordIsReportedAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	opened, bucket := openAt(t, path)
	defer func() { _ = opened.Close() }()
	for _, key := range []string{"good", "bad"} {
		if err := bucket.Put(key, thing{Name: key}); err != nil {
			t.Fatal(err)
		}
	}
	err := opened.bolt.Update(func(tx *bbolt.Tx) error {
		things := tx.Bucket([]byte("things"))
		return things.Put([]byte("bad"),
			[]byte(strings.Replace(string(things.Get([]byte("bad"))), `"Name":"bad"`, `"Name":"bat"`, 1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	records, damaged, err := bucket.All()
	if err != nil || len(records) != 1 || len(damaged) != 1 || damaged[0].Key != "bad" {
		t.Errorf("records = %v, damaged = %v, %v, want one of each", records, damaged, err)
	}
}

// Records from older drivers are readable. An older driver must not read newer records, because it would write them
// back without the fields that it does not know.
func TestJournalOfAnOlderSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal.db")
	opened, bucket := openAt(t, path)
	if err := bucket.Put("a", thing{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	older := func(tx *bbolt.Tx) error {
		record := tx.Bucket(bucket.name).Get([]byte("a"))
		older := bytes.Replace(record, fmt.Appendf(nil, `"schema":%d`, schema), []byte(`"schema":1`), 1)
		if bytes.Equal(record, older) {
			t.Error("records were written with the schema of the older driver")
		}
		if err := tx.Bucket(bucket.name).Put([]byte("a"), older); err != nil {
			return err
		}
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte("1"))
	}
	if err := opened.bolt.Update(older); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	opened, bucket = openAt(t, path)
	defer func() { _ = opened.Close() }()
	records, damaged, err := bucket.All()
	if err != nil || len(damaged) > 0 || records["a"].Name != "a" || opened.SetAside != "" {
		t.Errorf("records = %v, damaged = %v, %v, want record a", records, damaged, err)
	}
	err = opened.bolt.View(func(tx *bbolt.Tx) error {
		if stamped := string(tx.Bucket([]byte("meta")).Get([]byte("schema"))); stamped != fmt.Sprint(schema) ||
			schema < 2 {
			t.Errorf("the journal has the wrong schema %s after this driver opened it", stamped)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The JSON encoding of these types is read by other driver versions.
func TestFormIsThatOfTheLibrary(t *testing.T) {
	records := []any{nil, 0, "", "<a&b>\u2028\"\\\n\xff", []int{}, map[string]any{"b": 1.5, "a": nil},
		struct{ Raw json.RawMessage }{json.RawMessage(" {\"k\" : [ 1 ,\t2 ], \"html\": \"<>\" }\n")}}
	for _, record := range records {
		got, err := encode(record)
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := json.Marshal(record)
		want, err := json.Marshal(envelope{Schema: schema, Checksum: checksum(payload), Payload: payload})
		if err != nil || string(got) != string(want) {
			t.Errorf("record is %s, want %s (%v)", got, want, err)
		}
		for _, c := range []change{
			{Seq: 7, Bucket: "things", Key: "<k>\xff", Record: got, noted: true, replaced: &change{}}, {Seq: 8},
		} {
			got, err := c.encode()
			if err != nil {
				t.Fatal(err)
			}
			if want, err := json.Marshal(c); err != nil || string(got) != string(want) {
				t.Errorf("note is %s, want %s (%v)", got, want, err)
			}
		}
	}
	if _, err := encode(func() {}); err == nil {
		t.Error("a record that cannot be encoded as JSON was stored")
	}
}

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// modulePath is the project's module path, as in the first line of go.mod.
const modulePath = "github.com/dra-networking/dra-network-driver"

// cacheVariable is the environment variable that specifies the cache directory.
const cacheVariable = "DRA_NETWORK_CACHE"

// findClone returns the root of the clone that contains the working directory. It skips e2e's go.mod, because e2e is a
// separate module with a longer path.
func findClone() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		data, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil {
			first, _, _ := strings.Cut(string(data), "\n")
			if strings.TrimSpace(first) == "module "+modulePath {
				return d, nil
			}
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside a clone of %s: change into one", dir, modulePath)
		}
	}
}

// CacheDir returns the directory for binaries and cluster state: $DRA_NETWORK_CACHE, or a directory in the user's
// cache.
func CacheDir() (string, error) {
	if dir := os.Getenv(cacheVariable); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find a cache folder: %w; set %s to one", err, cacheVariable)
	}
	return filepath.Join(dir, "dra-network-driver"), nil
}

// cacheDir creates dir, or the default if dir is empty, and returns its absolute path.
func cacheDir(dir string) (string, error) {
	var err error
	if dir == "" {
		dir, err = CacheDir()
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache folder: %w; set %s to another", err, cacheVariable)
	}
	return dir, nil
}

// exists reports whether a file exists at path. If this cannot be determined, it returns true, because callers create
// or remove something if the file does not exist.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

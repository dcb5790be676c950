package telemetry

// Levels of log messages. docs/dev/logging.md has the rules, and 0 and 2 in words.
const (
	LevelDecisions = 4
	LevelCalls     = 6
)

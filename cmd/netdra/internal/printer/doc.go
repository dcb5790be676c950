// Package printer writes results: for people with colours and tables, for programs as JSON or YAML.
//
// The rule of this package: text that plugins, links or a cluster supply is cleaned before it reaches a terminal.
package printer

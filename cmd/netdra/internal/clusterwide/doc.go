// Package clusterwide lists the answers of the drivers of several nodes.
//
// The rule of this package: it queries nodes only through [remote], for the JSON output of netdra commands.
//
// The answers are decoded into the types of the command that runs on the node. These types are therefore an interface
// between versions of netdra: fields may be added, but must not change their meaning.
package clusterwide

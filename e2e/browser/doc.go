// Package browser opens the pages that "netdra report" generates in Chromium and checks, through Chromium's debugging
// protocol, that they work for readers: on a desktop and on a phone, in light and dark mode, with only a keyboard, and
// with a screen reader.
//
// Invariant: it opens the golden files in the packages that generate the pages, so no cluster is needed.
// The pages are never modified, not even by the script that measures them (audit.js).
package browser

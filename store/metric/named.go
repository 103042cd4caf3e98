package metric

import "sync"

// Named gives what apps name, such as their rate limits and pools, the labels app and name: as many as fit between the bounds, first come,
// first served. Names from the others share Other. It is safe for concurrent use.
type Named struct {
	all, ofApp int

	mu    sync.Mutex
	apps  map[string]map[string]bool // the names with a label, by app with a label
	names int
}

// NewNamed makes one for so many names of all apps, and of each of up to MaxApps.
func NewNamed(all, ofApp int) *Named {
	return &Named{all: all, ofApp: ofApp, apps: map[string]map[string]bool{}}
}

// Labels are the values of the labels. name must be short, and valid UTF-8.
func (n *Named) Labels(app, name string) (appLabel, nameLabel string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.apps[app]
	if known == nil {
		if len(n.apps) >= MaxApps {
			return Other, Other
		}
		known = map[string]bool{}
		n.apps[app] = known
	}
	if !known[name] {
		if len(known) >= n.ofApp || n.names >= n.all {
			return Label(app), Other
		}
		known[name] = true
		n.names++
	}
	return Label(app), name
}

package purge

import "testing"

func TestOwns(t *testing.T) {
	spread := ownership{prefix: "shop:", namespace: "shop"}
	together := ownership{prefix: "{shop}:", namespace: "shop"}
	for _, c := range []struct {
		who  ownership
		key  string
		want bool
	}{
		{spread, "shop:a", true},
		{spread, "shop:", true},
		{spread, "shop:{x}:\x00\r\n", true},
		{spread, "slotgate:p:{shop/pool}:ring", true},
		{spread, "slotgate:r:{shop/limit|10.0.0.1}:s", true},
		{together, "{shop}:a", true},
		{together, "slotgate:p:{shop/pool}:ring", true},

		{spread, "shop", false},
		{spread, "shop2:a", false},
		{spread, "shop-eu:a", false},
		{spread, "xshop:a", false},
		{spread, "{shop}:a", false},
		{together, "shop:a", false},
		{spread, "slotgate:{acl}:apps", false},
		{spread, "slotgate:p:{shop2/pool}:ring", false},
		{spread, "slotgate:p:{other/pool}:{shop/x}", false},
		{spread, "slotgate:{other/x}:{shop/x}", false},
		{spread, "slotgate::{shop/x}", false},
		{spread, "slotgate:p:{shop}:ring", false},
		{spread, "other:slotgate:p:{shop/pool}:ring", false},
	} {
		if got := c.who.owns(c.key); got != c.want {
			t.Errorf("prefix %q, key %q: owned %v, want %v", c.who.prefix, c.key, got, c.want)
		}
	}
}

func TestEscape(t *testing.T) {
	if got := escape(`a*b?c[d]e\f-`); got != `a\*b\?c\[d\]e\\f-` {
		t.Error(got)
	}
}

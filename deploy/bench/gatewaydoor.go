//go:build linux

package main

// gatewayDoors are a variant's two doors: JSON, and the raw one, which has no batches.
func gatewayDoors(v variant, gateways []*gateway, data string, h2c bool) []*door {
	json := batchDoor(v.Name+" JSON", func(app int) string { return "Authorization: Bearer " + gateways[0].tokens[app] + "\r\n" })
	raw := &door{name: v.Name + " raw"}
	json.kind, raw.kind = "JSON", "raw"
	for _, d := range []*door{json, raw} {
		d.build, d.gateways, d.data, d.h2c = v.Name, gateways, data, h2c
		for _, g := range gateways {
			d.addrs = append(d.addrs, g.addr)
		}
		d.server = func() []int {
			var pids []int
			for _, g := range gateways {
				pids = append(pids, g.pids()...)
			}
			return pids
		}
	}
	auth := func(app int) string { return "Authorization: Bearer " + gateways[0].tokens[app] + "\r\n" }
	json.get = func(app int, key string) []byte { return request("GET", "/v1/strings/"+key, auth(app), "") }
	json.put = func(app int, key, value string) []byte {
		return request("PUT", "/v1/strings/"+key, auth(app)+typeJSON, jsonOf(map[string]string{"value": value}))
	}
	json.value = valueMember
	raw.get = func(app int, key string) []byte { return request("GET", "/v1/bytes/"+key, auth(app), "") }
	raw.put = func(app int, key, value string) []byte {
		return request("PUT", "/v1/bytes/"+key, auth(app)+"Content-Type: application/octet-stream\r\n", value)
	}
	raw.value = func(body []byte) (string, error) { return string(body), nil }
	return []*door{json, raw}
}

const typeJSON = "Content-Type: application/json\r\n"

// batchDoor asks for batches as the gateway takes them; the ladder's servers understand the same.
func batchDoor(name string, header func(app int) string) *door {
	return &door{
		name: name,
		mget: func(app int, keys []string) []byte {
			return request("POST", "/v1/mget", header(app)+typeJSON, jsonOf(map[string][]string{"keys": keys}))
		},
		mset: func(app int, keys, values []string) []byte {
			items := make([]batchItem, len(keys))
			for i := range keys {
				items[i] = batchItem{keys[i], values[i]}
			}
			return request("POST", "/v1/mset", header(app)+typeJSON, jsonOf(map[string]any{"items": items}))
		},
		values:  itemValues,
		written: map[string]string{opMSet: `"written":`},
	}
}

type batchItem struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

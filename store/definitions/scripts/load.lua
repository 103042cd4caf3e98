-- A definition. KEYS: 1 its hash: v the version, d the definition, others what its kind keeps with it. ARGV: 1 the version that the
-- gateway has. Returns {0} if there is none, {2} if it is that one, otherwise {1, field, value, ...}.
local version = redis.call('HGET', KEYS[1], 'v')
if not version then return {0} end
if version == ARGV[1] then return {2} end
local reply = redis.call('HGETALL', KEYS[1])
table.insert(reply, 1, 1)
return reply

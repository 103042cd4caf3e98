-- The frame in which a script runs for a write that has an Idempotency-Key: the operation is a function above this text.
-- KEYS: 1 the caller's key, 2 the record. ARGV: 1 version and fingerprint of the request, 2 life of a record in ms, 3 what the
-- record keeps behind the reply, encoded, 4 '1' if copies will be waited for; then the operation's own.
-- Returns what the operation does, or {-20, the record's reply} without running it, or {-21}: the record is of another request.
local record = redis.call('GET', KEYS[2])
if record then
  if string.sub(record, 1, #ARGV[1]) ~= ARGV[1] then return {-21} end
  -- WAIT is for the last write of its connection: without one of its own a repetition would pass for replicated at once (Redis 8.2,
  -- Valkey 9; Redis 7.0 waits for what others wrote, too). This one changes nothing.
  if ARGV[4] == '1' then redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), 1)) end
  return {-20, string.sub(record, #ARGV[1] + 1)}
end
local own = {}
for i = 5, #ARGV do own[i - 4] = ARGV[i] end
local reply = operation({KEYS[1]}, own)
if reply[1] ~= 1 then return reply end

-- Status 1 is a write that was done; nothing else is recorded.
local parts = {ARGV[1]}
for i = 1, #reply do
  local part = reply[i]
  if type(part) == 'number' then
    parts[i + 1] = ':' .. string.format('%.0f', part) .. '\n'
  else
    parts[i + 1] = '$' .. #part .. '\n' .. part .. '\n'
  end
end
redis.call('SET', KEYS[2], table.concat(parts) .. ARGV[3], 'PX', ARGV[2])
return reply

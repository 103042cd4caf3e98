local ended, ejections, changed, other = 0, 0, {}, false

-- blame takes a lease of m that was abandoned for a failure that was reported.
local function blame(m)
  local o = changed[m]
  if not o and call('ZSCORE', KEYS[6], m) then o = read(call('HGET', KEYS[7], m)) end
  if not o then return end
  local before = o.state
  o.C = o.C + 1
  failed(o)
  changed[m] = o
  if o.state ~= before then
    other = true
    if o.state == 2 then ejections = ejections + 1 end
  end
end

for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', '0', most)) do
  local held = call('HGET', KEYS[4], id)
  call('ZREM', KEYS[3], id)
  call('HDEL', KEYS[4], id)
  if held then
    local m = sub(held, 17)
    local left = call('ZADD', KEYS[2], 'XX', 'INCR', '-1', m)
    if left then
      if tonumber(left) < 0 then call('ZADD', KEYS[2], '0', m) end
    elseif call('HEXISTS', KEYS[5], m) == 1 and call('HINCRBY', KEYS[5], m, '-1') <= 0 then
      call('HDEL', KEYS[5], m)
    end
    ended = ended + 1
    if KEYS[6] then blame(m) end
  end
end
local first = tonumber(call('ZRANGE', KEYS[3], '0', '0', 'WITHSCORES')[2]) or 0
if ended > 0 or first ~= due then call('SETRANGE', KEYS[1], '40', pack('<dd', first, abandoned + ended)) end
if other then call('DEL', KEYS[8]) end
for m, o in pairs(changed) do call('HSET', KEYS[7], m, written(o)) end
return {ended, call('ZCARD', KEYS[3]), ejections}

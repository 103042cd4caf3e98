local reaped = ttl > 0 and due > 0 and due <= now
if reaped then
  -- Work that was abandoned: 32 at most, or a caller would wait for the neglect of others. A lease of a member that is not eligible any
  -- more is counted aside.
  for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[leases + 1], '-inf', now, 'LIMIT', '0', '32')) do
    local held = call('HGET', KEYS[leases + 2], id)
    call('ZREM', KEYS[leases + 1], id)
    call('HDEL', KEYS[leases + 2], id)
    if held then
      local m = sub(held, 17)
      local left = call('ZADD', KEYS[leases], 'XX', 'INCR', '-1', m)
      if left then
        if tonumber(left) < 0 then call('ZADD', KEYS[leases], '0', m) end
      elseif call('HEXISTS', KEYS[leases + 3], m) == 1 and call('HINCRBY', KEYS[leases + 3], m, '-1') <= 0 then
        call('HDEL', KEYS[leases + 3], m)
      end
      abandoned = abandoned + 1
    end
  end
  due = tonumber(call('ZRANGE', KEYS[leases + 1], '0', '0', 'WITHSCORES')[2]) or 0
end

local reply, why = '', 0
local same = bound and call('GET', bound)
if same and (out and out[same] or not call('ZSCORE', KEYS[2], same)) then same = nil end
for n = 1, count do
  local m
  if same and fits and not fits(same) then same = nil end -- each time: it may have got a lease
  if same then m, why = same, 0 else m, why = choose(n) end
  if not m then break end
  if bound then
    call('SET', bound, m, 'PX', sticky)
    same = m
  end
  local total, part = call('ZINCRBY', KEYS[2], '1', m), nil
  if ttl > 0 then
    local id, ends = sub(ARGV[1], at, at + 21), now + ttl
    at = at + 22
    fence = fence + 1
    if fence < now then fence = now end -- it grows also if a failover has lost the last ones
    call('ZINCRBY', KEYS[leases], '1', m)
    call('ZADD', KEYS[leases + 1], ends, id)
    call('HSET', KEYS[leases + 2], id, pack('<ddc0', fence, now, m))
    if due == 0 or ends < due then due = ends end
    part = pack('<dddc0dc0', total, fence, ends, id, #m, m)
  else
    part = pack('<ddc0', total, #m, m)
  end
  if moded then part = part .. pack('<d', why) end
  if reply == '' then reply = part else reply = reply .. part end
end

if ttl > 0 and (reaped or reply ~= '') then call('SETRANGE', KEYS[1], '32', pack('<ddd', fence, due, abandoned)) end
if reply == '' then
  local wait = 0
  if call('ZCARD', KEYS[2]) == 0 then
    why = -1
    if wake > 0 then why, wait = -4, wake - now end
  elseif why == -5 then
    wait = (tonumber(call('ZRANGE', KEYS[leases + 1], '0', '0', 'WITHSCORES')[2]) or now) - now
  end
  if wait <= 0 then return {why, 0} end
  wait = wait / 1000
  return {why, wait + -wait % 1}
end
if keep then keep() end
if head then call('SET', KEYS[#KEYS], head .. ARGV[4] .. reply, 'PX', ARGV[3]) end
return reply

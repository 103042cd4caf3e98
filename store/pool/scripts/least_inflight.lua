-- KEYS: 3 inf, which is that of leases too.
local leases = 3
local function choose()
  if not out and most == 0 then return call('ZRANGE', KEYS[3], '0', '0')[1] end
  local z = call('ZRANGE', KEYS[3], '0', excluded, 'WITHSCORES')
  for i = 1, #z, 2 do
    if not out or not out[z[i]] then
      if most > 0 and tonumber(z[i + 1]) >= most then return nil, -5 end
      return z[i]
    end
  end
  return nil, -2
end
local keep
if bound and most > 0 then
  fits = function(m) return tonumber(call('ZSCORE', KEYS[3], m)) < most end
end

import cistern

pool = cistern.KeyedPool()  # made once, kept for all cells
for rows in (1200, 800, 1500, 1000):
    coeff = pool.get_or_create("coeff", (rows, 100))  # contiguous, whatever was asked before
    gram = pool.get_or_create("gram", (100, 100))
    coeff.fill(1.0)
    gram[...] = coeff.T @ coeff
    del coeff, gram  # growing keeps the pages when nobody holds an array of the key
for key, counts in pool.get_stats().items():
    print(key, counts)

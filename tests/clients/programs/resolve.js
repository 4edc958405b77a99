// resolve.js HOST: its addresses by c-ares, which asks the server in resolv.conf itself.
require('dns').resolve4(process.argv[2], (error, addresses) => {
  console.log(error ? error.message : addresses.join(' '));
  process.exit(error ? 1 : 0);
});
